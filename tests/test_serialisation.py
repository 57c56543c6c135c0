"""Model files: what is loaded equals what was saved; damaged and foreign ones say so in a line."""

import errno
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

import rnade.files
from rnade import (
    FVBN,
    FVSBN,
    NADE,
    RNADE,
    Gaussian,
    MixtureOfFactorAnalyzers,
    MixtureOfGaussians,
    load,
)
from rnade.exceptions import ModelFileError
from rnade.serialisation import read_model, write_model

QUICK = {"epochs": 2, "random_state": 0, "device": "cpu"}
X = np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 100] + 3
MODELS = {
    "rnade-auto": RNADE(n_hidden=4, **QUICK),
    "rnade": RNADE(n_hidden=4, ensemble=None, **QUICK),
    "rnade-laplace-random": RNADE(n_hidden=4, family="laplace", order="random", **QUICK),
    "rnade-permuted": RNADE(n_hidden=4, order=np.array([2, 0, 1]), **QUICK),
    "rnade-float64": RNADE(n_hidden=4, dtype="float64", **QUICK),
    "rnade-deep": RNADE(n_hidden=4, n_layers=3, ensemble=None, **QUICK),
    "rnade-retrain": RNADE(n_hidden=4, retrain=True, **QUICK),
    "nade-tied": NADE(n_hidden=4, tied_weights=True, **QUICK),
    "fvsbn": FVSBN(**QUICK),
    "fvbn": FVBN(n_hidden=[3, 5], n_components=[1, 2], order="random", **QUICK),
    "gaussian": Gaussian(random_state=0, device="cpu"),
    "mog": MixtureOfGaussians([1, 2], random_state=0, device="cpu"),
    "mog-float32": MixtureOfGaussians(2, dtype="float32", random_state=0, device="cpu"),
    "mfa": MixtureOfFactorAnalyzers((2,), "search", random_state=0, device="cpu", max_iter=9),
}


@pytest.fixture(scope="module")
def fitted():
    return RNADE(n_hidden=4, ensemble=None, **QUICK).fit(X)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "model.rnade"
    fitted.save(path)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_equals_what_was_saved_bit_for_bit(name, tmp_path):
    model = MODELS[name].fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    path = tmp_path / "model.rnade"
    model.save(path)
    loaded = load(path, device="cpu")
    assert type(loaded) is type(model)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    np.testing.assert_array_equal(loaded.score_samples(frame), model.score_samples(frame))
    np.testing.assert_array_equal(loaded.pvalue(frame), model.pvalue(frame))
    np.testing.assert_array_equal(loaded.sample(5, 0), model.sample(5, 0))
    for key, tensor in model.module_.state_dict().items():
        assert torch.equal(loaded.module_.state_dict()[key], tensor), key
    assert loaded.history_ == model.history_
    assert loaded.fitted_rows_.are(X)
    np.testing.assert_array_equal(loaded.fitted_rows_.held_out, model.fitted_rows_.held_out)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    assert loaded.held_out_score() == model.held_out_score()
    assert loaded.n_rows_ == 60
    with pytest.raises(ValueError, match="same order"):
        loaded.score_samples(frame[["b", "a", "c"]])
    # Equal models are equal files.
    loaded.save(tmp_path / "again.rnade")
    assert (tmp_path / "again.rnade").read_bytes() == path.read_bytes()


def test_loading_does_not_unpickle(saved):
    program = (
        "import pickle, torch\n"
        "def refuse(*a, **k): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = torch.load = refuse\n"
        f"import rnade; rnade.load({str(saved)!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_existing_files_are_kept_unless_asked(fitted, saved):
    before = saved.read_bytes()
    with pytest.raises(FileExistsError, match=r"model.rnade exists already"):
        fitted.save(saved)
    assert saved.read_bytes() == before
    fitted.save(saved, overwrite=True)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(fitted, saved, monkeypatch):
    before = saved.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rnade.files.os, "fsync", full)
    with pytest.raises(OSError, match=r"Cannot write .*model.rnade: No space left on device"):
        fitted.save(saved, overwrite=True)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model.rnade"]


def test_a_crash_while_writing_leaves_no_half_a_file(fitted, tmp_path, monkeypatch):
    def crash(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(rnade.files.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(tmp_path / "model.rnade")
    assert os.listdir(tmp_path) == []


def test_places_where_no_file_can_be_are_refused(fitted, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory"):
        fitted.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="the folder .*nowhere does not exist"):
        fitted.save(tmp_path / "nowhere" / "model.rnade")


def test_unfitted_models_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted yet"):
        RNADE().save(tmp_path / "model.rnade")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file .*none.rnade"):
        load(tmp_path / "none.rnade")
    with pytest.raises(IsADirectoryError, match="is a directory, not a model file"):
        load(tmp_path)


FOREIGN = {
    "pickle": (pickle.dumps({"a": 1}), "it looks like a pickle"),
    "torch": (b"PK\x03\x04rest of a zip archive", "it looks like a ZIP archive, such as torch"),
    "png": (b"\x89PNG\r\n\x1a\n0000", "it looks like a PNG picture"),
    "text": (b"fixed acidity;volatile acidity\n7.4;0.7\n", "it does not begin as one"),
    "empty": (b"", "it is empty"),
    "short": (b"\x10\x00", "it does not begin as one"),
    "oversized": (struct.pack("<Q", 2**40) + b"{}", "claims a header of 1099511627776 bytes"),
    "cut-header": (struct.pack("<Q", 5000) + b"{}", "cut short: it ends inside its header"),
    "safetensors": (
        safetensors.torch.save({"w": torch.zeros(2)}),
        "is a safetensors file, but not an rnade model",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_told_apart_in_one_line(name, tmp_path):
    data, message = FOREIGN[name]
    path = tmp_path / "model.rnade"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_truncated_files_are_refused_wherever_they_end(saved):
    data = saved.read_bytes()
    for length in np.linspace(0, len(data) - 1, 25).astype(int):
        saved.write_bytes(data[:length])
        with pytest.raises(ModelFileError) as caught:
            load(saved)
        assert "\n" not in str(caught.value)


def test_any_altered_byte_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    for at in rng.integers(8, len(data), size=60):
        changed = data.copy()
        changed[at] ^= 0x15
        saved.write_bytes(changed)
        with pytest.raises(ModelFileError) as caught:
            load(saved)
        assert "\n" not in str(caught.value)


def rewrite(path, change):
    """Write the file again, checksum and all, with its settings or tensors changed."""
    tensors, settings = read_model(path)
    change(tensors, settings)
    write_model(path, tensors, settings, overwrite=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, s: s.update({"class": "os.system"}), "it holds a 'os.system', which this"),
        (lambda t, s: s["parameters"].update(n_hidden=10**12), "W.*shape|size mismatch"),
        (lambda t, s: s["parameters"].update(n_hidden=5), "size mismatch"),
        (lambda t, s: s.update(n_columns=10**12), "it claims 1000000000000 columns"),
        (lambda t, s: t.pop("module.W"), "W"),
        (lambda t, s: t.pop("standardiser.mean"), "standardiser.mean"),
        (lambda t, s: s["parameters"].update(surprise=1), "surprise"),
        (lambda t, s: s.pop("history"), "history"),
    ],
    ids=["class", "huge", "hidden", "columns", "tensor", "array", "parameter", "setting"],
)
def test_files_that_do_not_describe_a_model_are_refused(saved, change, message):
    """Quickly, and without allocating what they claim to need."""
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_a_newer_format_asks_for_an_upgrade(saved, monkeypatch):
    monkeypatch.setattr("rnade.serialisation.FORMAT_VERSION", 2)
    rewrite(saved, lambda t, s: None)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="has format 2, .* reads formats up to 1. Upgrade"):
        load(saved)


def test_settings_are_readable_json_for_anyone(saved):
    size = struct.unpack("<Q", saved.read_bytes()[:8])[0]
    header = json.loads(saved.read_bytes()[8 : 8 + size])
    settings = json.loads(header["__metadata__"]["rnade"])["settings"]
    assert settings["class"] == "RNADE"
    assert settings["parameters"]["n_hidden"] == 4
    assert settings["history"][0]["epoch"] == 0


def test_files_of_before_fitted_rows_were_stored_still_load(saved, fitted):
    tensors, settings = read_model(saved)
    tensors = {name: t for name, t in tensors.items() if not name.startswith("rows.")}
    for name in ("rows_digest", "origin", "format_version", "library_version"):
        settings.pop(name)
    write_model(saved, tensors, settings, overwrite=True)
    loaded = load(saved)
    assert loaded.fitted_rows_ is None
    assert not hasattr(loaded, "origin_")
    loaded.save(saved, overwrite=True)
    assert load(saved).fitted_rows_ is None
    np.testing.assert_array_equal(loaded.score_samples(X), fitted.score_samples(X))


def test_files_whose_averages_were_called_searches_still_load(saved, fitted):
    tensors, settings = read_model(saved)
    parameters = settings["parameters"]
    parameters["search"] = parameters.pop("ensemble")
    parameters.pop("score_dtype")
    for name in ("format_version", "library_version"):
        settings.pop(name)
    write_model(saved, tensors, settings, overwrite=True)
    loaded = load(saved)
    assert loaded.ensemble is None
    np.testing.assert_array_equal(loaded.score_samples(X), fitted.score_samples(X))
