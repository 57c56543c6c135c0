"""Table 3 and Figure 2: splits, shrunk mixtures, residuals, tables, files, bad sound."""

import copy
import dataclasses
import hashlib
import json
import math
import shutil

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Generator

from rnade.cli import main
from rnade.data import DataStore
from rnade.data.manifest import DataFile, Manifest
from rnade.data.speech import (
    CORE_TEST_SPEAKERS,
    SpeechFolder,
    find_utterances,
    split_speech,
)
from rnade.evaluation import standard_error_by_group
from rnade.exceptions import DataError, SingularDataError
from rnade.nn import MixtureOfFactorAnalyzersModule, MixtureOfGaussiansModule
from rnade.reproduce import get_experiment
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.layout import to_markdown
from rnade.reproduce.core.runner import Job, RecordFile
from rnade.reproduce.speech import models, table3, variants
from rnade.reproduce.speech.data import FoldWindows, load_fold, sizes_of_parts
from rnade.reproduce.speech.figure2 import as_pictures
from rnade.reproduce.speech.models import fit, kept_or_fitted
from rnade.reproduce.speech.rows import PAPER_SPEECH, ROWS, VARIANTS, mixture, quick, rnade, shown
from rnade.reproduce.speech.tables import choose, chosen_of, lay_out
from rnade.serialisation import write_model
from rnade.training import EMSettings, Recipe, fit_mixture
from rnade.training.em.steps import steps_for
from tests.test_data_speech import RATE, riff, sphere
from tests.test_reproduce import RESULTS

# ---------------------------------------------------------------- made-up speech


def murmur(n, seed):
    """Noise through a resonance that wanders: no two windows are alike."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / RATE
    carrier = np.sin(2 * np.pi * np.cumsum(400 + 300 * np.sin(7 * t + seed)) / RATE)
    loud = 1000 * np.exp(
        0.7 * np.sin(11 * t) + 0.3 * rng.normal(size=n // 160 + 1).repeat(160)[:n]
    )
    return (loud * (carrier + rng.normal(size=n))).clip(-30000, 30000).astype("<i2")


@pytest.fixture(scope="module")
def talkers(tmp_path_factory):
    """Six speakers with two sentences each of a second and a half, and two sa sentences."""
    folder = tmp_path_factory.mktemp("speech")
    for speaker in range(6):
        (folder / f"s{speaker}").mkdir()
        for file in ("a", "b", "sa1"):
            sound = murmur(24_000, 10 * speaker + len(file))
            (folder / f"s{speaker}" / f"{file}.wav").write_bytes(riff(sound))
    return folder


@pytest.fixture(scope="module")
def timit(tmp_path_factory):
    """A small tree in TIMIT's own layout, with SPHERE headers and names in upper case."""
    folder = tmp_path_factory.mktemp("ldc") / "TIMIT"
    speakers = [("TEST", s, 4000) for s in [*sorted(CORE_TEST_SPEAKERS), "mxyz0"]]
    speakers += [("TRAIN", s, 40_000) for s in ("fcjf0", "mdac0")]
    for i, (part, speaker, n) in enumerate(speakers):
        place = folder / part / f"DR{i % 8 + 1}" / speaker.upper()
        place.mkdir(parents=True)
        for j, sentence in enumerate(("SA1", "SI648", "SX127")):
            (place / f"{sentence}.WAV").write_bytes(sphere(murmur(n, 3 * i + j)))
    return folder


def reproduce(name, output, *options):
    return main(["reproduce", name, "--quick", "--quiet", "-o", str(output), *map(str, options)])


def records_of(folder):
    return list(RecordFile(folder / "records.jsonl").read().values())


# ---------------------------------------------------------------- the commands


def test_any_folder_from_the_command_line(talkers, tmp_path, capsys):
    output = tmp_path / "table3"
    few = ("--models", "mog-50,rnade-mog-10,rnade-mog-orders", "--folds", 2)
    assert reproduce("table3", output, "--speech", talkers, *few) == 0
    records = records_of(output)
    assert [(r["job"]["model"], r["job"]["fold"]) for r in records] == [
        (m, k) for m in ("mog-50", "rnade-mog-10", "rnade-mog-orders") for k in (0, 1)
    ]
    first, second = records[:2]
    assert set(first["result"]["data"]["test_speakers"]).isdisjoint(
        second["result"]["data"]["test_speakers"]
    )
    assert len(first["result"]["utterances"]["mean"]) == 2  # one test speaker, no sa sentence
    shown = capsys.readouterr().out
    assert f"Table 3: {talkers.name}, 6 speakers" in shown
    assert "RNADE-MoG K=10 less MoG N=50, 2 splits" in shown
    # A second run has nothing to do, and another folder is another job.
    assert reproduce("table3", output, "--speech", talkers, *few) == 0
    assert len(records_of(output)) == 6
    assert str(talkers) not in (output / "records.jsonl").read_text()


def test_timit_from_the_command_line(timit, tmp_path):
    output = tmp_path / "table3"
    assert reproduce("table3", output, "--timit", timit, "--models", "mog-50") == 0
    [record] = records_of(output)
    assert set(record["result"]["data"]["test_speakers"]) == CORE_TEST_SPEAKERS
    assert len(record["result"]["utterances"]["mean"]) == 48
    assert "(110.40," in (output / "table.md").read_text()  # beside the paper's figure


def test_bad_files_are_refused_or_skipped_as_asked(talkers, tmp_path, capsys):
    folder = tmp_path / "speech"
    for place in talkers.rglob("*.wav"):
        (folder / place.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / place.parent.name / place.name).write_bytes(place.read_bytes())
    (folder / "s0" / "broken.wav").write_bytes(riff(murmur(9000, 0))[:-50])
    (folder / "s3" / "empty.wav").write_bytes(b"")
    few = ("--speech", folder, "--models", "mog-50")
    assert reproduce("table3", tmp_path / "out", *few) != 0
    told = capsys.readouterr().err
    assert "bad" in told
    assert reproduce("table3", tmp_path / "out", *few, "--on-bad-file", "skip") == 0
    skipped = records_of(tmp_path / "out")[0]["result"]["data"]["skipped"]
    assert skipped == {
        "s0/broken.wav": "is cut short: its header promises 50 bytes more.",
        "s3/empty.wav": "is empty.",
    }
    assert reproduce("table3", tmp_path / "out", *few, "--on-bad-file", "ignore") != 0
    assert "'ignore' is not one of 'refuse', 'skip'" in capsys.readouterr().err


def test_the_sample_is_held_to_its_checksums(talkers, tmp_path):
    """A file of the sample that is not what the manifest says is refused or left out by name."""
    entries = {}
    for place in talkers.rglob("*.wav"):
        name = f"timit_sample/dr1-{place.parent.name}/{place.name}"
        contents = place.read_bytes()
        sha256 = hashlib.sha256(contents).hexdigest()
        entries[name] = DataFile(name, sha256, len(contents), "timit-sample")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(contents)
    altered = bytearray((tmp_path / "timit_sample/dr1-s2/b.wav").read_bytes())
    altered[5000] ^= 1  # still a sound file, but another one
    (tmp_path / "timit_sample/dr1-s2/b.wav").write_bytes(altered)
    manifest = Manifest(entries, {"timit-sample": {"source": "here"}}, {})
    store = DataStore(tmp_path, manifest=manifest)
    cpu = torch.device("cpu")
    with pytest.raises(DataError, match="dr1-s2/b.wav is not the file that was expected"):
        load_fold("sample", 0, SpeechFolder(), store, cpu)
    fold = load_fold("sample", 0, SpeechFolder(on_bad_file="skip"), store, cpu)
    assert list(fold.facts["skipped"]) == ["dr1-s2/b.wav"]
    assert sum(fold.facts["n_windows"].values()) == 11 * 138  # 12 utterances but one
    with pytest.raises(DataError, match="licensed and cannot be downloaded"):
        load_fold("timit", 0, SpeechFolder(), store, cpu)


def test_folders_that_cannot_be_split(talkers, tmp_path, capsys):
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, place in enumerate(sorted(talkers.rglob("[ab].wav"))):
        (flat / f"{i}.wav").write_bytes(place.read_bytes())
    few = ("--speech", flat, "--models", "mog-50")
    assert reproduce("table3", tmp_path / "out", *few) != 0
    assert "--split-by file" in capsys.readouterr().err
    assert reproduce("table3", tmp_path / "out", *few, "--split-by", "file") == 0
    assert reproduce("table3", tmp_path / "out", *few, "--timit", flat) != 0
    assert "not both" in capsys.readouterr().err


def test_figure_2_uses_the_models_of_table_3(talkers, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    speech = ("--speech", talkers)
    assert reproduce("table3", tmp_path / "table3", *speech, "--models", "mog") == 0
    models = tmp_path / "table3-quick" / "models"
    assert [p.name.split("-")[0] for p in models.iterdir()] == ["mog"]
    assert reproduce("figure2", tmp_path / "figure2", *speech) == 0
    # What was missing was trained, and kept.
    assert sorted(p.name.rsplit("-", 1)[0] for p in models.iterdir()) == ["mog", "rnade-mog"]
    figure = tmp_path / "figure2" / "figure2.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "figure2" / "figure2.svg").read_bytes()
    # Drawn again from records alone, the same to the byte.
    before = (tmp_path / "figure2" / "figure2.svg").read_bytes()
    for path in models.iterdir():
        path.unlink()
    assert reproduce("figure2", tmp_path / "figure2", *speech, "--report-only") == 0
    assert (tmp_path / "figure2" / "figure2.svg").read_bytes() == before
    lines = {r["job"]["model"]: r["result"]["windows"] for r in records_of(tmp_path / "figure2")}
    assert {name: np.shape(w) for name, w in lines.items()} == {
        name: (15, 231) for name in ("data", "mog", "rnade-mog")
    }


def test_pictures_have_time_to_the_right_and_energy_below():
    windows = np.zeros((1, 11, 21))
    windows[0, :, 0] = 1  # the energy of every frame
    windows[0, 3, 20] = 2  # the highest filter of the fourth frame
    [picture] = as_pictures(windows.reshape(1, 231))
    assert picture.shape == (21, 11)
    assert (picture[-1] == 1).all()
    assert np.argwhere(picture == 2).tolist() == [[0, 3]]


# ---------------------------------------------------------------- splits and errors


@pytest.mark.parametrize(("n", "parts"), [(6, (4, 1, 1)), (16, (11, 2, 3)), (60, (48, 6, 6))])
def test_shares_of_speakers(n, parts, tmp_path):
    for speaker in range(n):
        (tmp_path / f"s{speaker}").mkdir()
        (tmp_path / f"s{speaker}" / "a.wav").touch()
    found = find_utterances(tmp_path)
    split = split_speech(found, **sizes_of_parts(found, SpeechFolder(tmp_path)))
    assert tuple(len(part) for part in (split.train, split.validation, split.test)) == parts


def test_folds_test_different_speakers(talkers):
    utterances = find_utterances(talkers)
    splits = [split_speech(utterances, n_validation=2, n_test=2, fold=k, seed=1) for k in range(3)]
    tested = [{u.speaker for u in s.test} for s in splits]
    assert set.union(*tested) == {f"s{i}" for i in range(6)}
    assert sum(map(len, tested)) == 6
    for s in splits:
        parts = [{u.speaker for u in p} for p in (s.train, s.validation, s.test)]
        assert [len(p) for p in parts] == [2, 2, 2]
        assert len(set.union(*parts)) == 6


def test_errors_by_group_agree_with_means_of_groups_and_with_resampling(seed):
    rng = np.random.default_rng(seed)
    level = rng.normal(size=12)
    equal = np.repeat(np.arange(12), 40)
    scores = level[equal] + 0.1 * rng.normal(size=480)
    means = scores.reshape(12, 40).mean(1)
    assert standard_error_by_group(scores, equal) == pytest.approx(
        scipy.stats.sem(means), rel=1e-9
    )
    counts = rng.integers(20, 60, size=12)
    groups = np.repeat(np.arange(12) + 5, counts)  # numbers need not begin at 0
    scores = level[groups - 5] + 0.1 * rng.normal(size=len(groups))
    sums = np.bincount(groups - 5, weights=scores)
    drawn = rng.integers(0, 12, size=(20_000, 12))
    resampled = sums[drawn].sum(1) / counts[drawn].sum(1)
    bessel = math.sqrt(12 / 11)
    assert standard_error_by_group(scores, groups) == pytest.approx(
        bessel * resampled.std(), rel=0.05
    )
    assert math.isnan(standard_error_by_group(scores, np.zeros(len(scores), dtype=int)))


# ---------------------------------------------------------------- shrunk mixtures


@pytest.fixture
def clusters(seed):
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(3, 5))
    return torch.as_tensor(centres[rng.integers(3, size=60)] + rng.normal(size=(60, 5)))


def test_shrunk_covariances_are_a_weighted_mean(clusters):
    module = MixtureOfGaussiansModule(5, 3).double()
    generator = Generator().manual_seed(0)
    module.set_components(
        torch.full((1, 3), 1 / 3),
        clusters[torch.randperm(60, generator=generator)[:3]][None],
        torch.eye(5, dtype=torch.float64).repeat(1, 3, 1, 1),
    )
    parts = [
        scipy.stats.multivariate_normal(mu.numpy()).logpdf(clusters.numpy())
        for mu in module.mu[0].detach()
    ]
    r = np.exp(parts - scipy.special.logsumexp(parts, axis=0))  # (K, N)
    n = r.sum(1)
    mu = r @ clusters.numpy() / n[:, None]
    scatter = [
        (r[k, :, None] * (clusters.numpy() - mu[k])).T @ (clusters.numpy() - mu[k])
        for k in range(3)
    ]
    within = sum(scatter) / 60
    ones = torch.ones(60, dtype=torch.float64)
    for shrinkage in (0.0, 7.0, math.inf):
        steps = steps_for(module, torch.zeros(5), shrinkage)
        got = steps.maximised(steps.gather(clusters, ones)).covariance[0].numpy()
        for k in range(3):
            expected = (
                within
                if shrinkage == math.inf
                else (scatter[k] + shrinkage * within) / (n[k] + shrinkage)
            )
            assert np.allclose(got[k], expected, rtol=1e-8, atol=1e-10)


def test_shrinkage_keeps_components_of_few_rows_alive(clusters):
    def fitted(shrinkage):
        module = MixtureOfGaussiansModule(5, 15).double()
        generator = Generator().manual_seed(0)
        module.set_components(
            torch.full((1, 15), 1 / 15),
            clusters[:15][None],
            0.1 * torch.eye(5, dtype=torch.float64).repeat(1, 15, 1, 1),
        )
        return fit_mixture(
            module,
            clusters,
            EMSettings(max_iter=50, tol=0),
            floor=torch.zeros(5),
            generator=generator,
            shrinkage=shrinkage,
        )

    with pytest.raises(SingularDataError, match="became singular"):
        fitted(0.0)
    assert math.isfinite(fitted(6.0).best_score)
    with pytest.raises(ValueError, match="Only mixtures of Gaussians with full covariances"):
        steps_for(MixtureOfFactorAnalyzersModule(5, 2, 1), torch.zeros(5), 1.0)


# ---------------------------------------------------------------- residuals and averages


@pytest.fixture
def fold(seed):
    """Rows of 6 dimensions in place of windows."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(6, 6))
    parts = [
        torch.as_tensor(rng.normal(size=(n, 6)) @ mixing, dtype=torch.float32)
        for n in (400, 100, 100)
    ]
    names = ("train", "validation", "test")
    utterance_of = {n: np.arange(len(p)) // 20 for n, p in zip(names, parts, strict=True)}
    return FoldWindows(0, *parts, utterance_of, {}, 3)


SMALL = dataclasses.replace(PAPER_SPEECH, epochs=2, batches_per_epoch=10)
DENSITIES = {
    "mixture": mixture(3, 10.0, EMSettings(max_iter=5)),
    "rnade": rnade("gaussian", 8, 2, SMALL),
    "laplace": rnade("laplace", 8, 2, SMALL),
    "orders": rnade("gaussian", 8, 2, SMALL, n_orders=3),
    "residuals": rnade("gaussian", 8, 2, SMALL, residuals=True, n_orders=3),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_fitted_densities_score_their_samples(name, fold):
    [(density, _)] = fit(DENSITIES[name], [fold])
    assert density.sample(5, 0).shape == (5, 6)
    assert torch.equal(density.sample(5, 0), density.sample(5, 0))
    # The density's own samples tell its entropy in two ways: E[log p / q] >= 0, and E[q / p] = 1.
    drawn = density.sample(4000, 1)
    mean, cov = drawn.double().mean(0).numpy(), np.cov(drawn.double().T.numpy())
    q = scipy.stats.multivariate_normal(mean, cov / 2)
    ratio = np.exp(q.logpdf(drawn.numpy()) - density.log_prob(drawn))
    assert ratio.mean() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("model", shown("sample"))
def test_a_kept_model_comes_back_from_its_file(model, fold, tmp_path, monkeypatch):
    job = Job({"dataset": "sample", "model": model, "fold": 0}, quick(shown("sample")[model]))
    fitted = kept_or_fitted(job, fold, tmp_path)
    monkeypatch.setattr(models, "fit", lambda *_: pytest.fail("it was fitted again"))
    kept = kept_or_fitted(job, fold, tmp_path)
    assert np.array_equal(kept.log_prob(fold.test), fitted.log_prob(fold.test))
    assert torch.equal(kept.sample(5, 0), fitted.sample(5, 0))
    # A file that holds something else, as one of another version may, is fitted again.
    write_model(models.file_of(job, tmp_path), {"0.W": torch.zeros(1)}, {}, overwrite=True)
    with pytest.raises(pytest.fail.Exception, match="fitted again"):
        kept_or_fitted(job, fold, tmp_path)


def test_the_paper_rows_have_the_papers_settings():
    row = ROWS["rnade-mog-20"].grid[0]
    assert (row["n_hidden"], row["n_components"], row["residuals"]) == (1024, 20, False)
    recipe = Recipe(**row["recipe"])
    assert (recipe.epochs, recipe.batches_per_epoch, recipe.batch_size) == (200, 1000, 25)
    assert (recipe.learning_rate, recipe.momentum, recipe.weight_decay) == (0.001, 0.9, 0.001)
    assert (recipe.schedule, recipe.warmup, recipe.averaging) == ("linear", 0, 0)
    assert recipe.scale_mean_gradient
    assert not Recipe(**ROWS["rnade-mol-20"].grid[0]["recipe"]).scale_mean_gradient
    em = EMSettings(**ROWS["mog-300"].grid[0]["em"])
    assert (em.max_iter, em.batch_size, em.step_size) == (1000, 20_000, 0.1)
    assert quick(row)["n_hidden"] < 20


# ---------------------------------------------------------------- tables


def record(model, fold, validation, tests, rows=ROWS, **settings):
    """A record as a run leaves it; test means of utterances of 10 windows."""
    mean = float(np.mean(tests))
    errors = {"error_by_window": 0.1, "error_by_utterance": 0.4}
    return {
        "job": {"dataset": "sample", "model": model, "fold": fold},
        "settings": {**rows[model].grid[0], **settings},
        "seconds": 3.0,
        "hardware": {"gpu": None, "processor": "abacus"},
        "result": {
            "best_epoch": 10 * fold,
            "data": {"skipped": {"s0/broken.wav": "is empty."}},
            "train": {"mean": mean + 5, **errors},
            "test": {"mean": mean, **errors},
            "validation": {"mean": validation},
            "utterances": {"n_windows": [10] * len(tests), "mean": list(tests)},
        },
    }


def test_validation_chooses_and_differences_are_paired():
    records = [
        record("mog", 0, 1.0, [100.0, 104.0], shrinkage=1.0),
        record("mog", 0, 2.0, [98.0, 100.0], shrinkage=2.0),  # validates better, tests worse
        record("mog", 1, 3.0, [110.0, 112.0]),
        record("rnade-mog", 0, 0.0, [109.0, 113.0]),
        record("rnade-mog", 1, 0.0, [125.0, 131.0]),
        record("rnade-mol", 0, 0.0, [105.0, 105.0]),
        record("rnade-mol", 1, 0.0, [120.0, 120.0]),
    ]
    chosen = choose(r for r in records if r["job"]["model"] == "mog")
    assert [chosen[k]["result"]["test"]["mean"] for k in (0, 1)] == [99.0, 111.0]
    models = ("mog", "rnade-mog", "rnade-mol")
    figures, errors, gaps, splits, times = lay_out("sample", models, records)
    assert "Sound files left out: s0/broken.wav." in figures.note
    assert times.cell(ROWS["mog"].label, "all splits").value == 9.0
    assert times.cell("all rows", "one split").value == 10.5
    assert "abacus" in times.note
    label = ROWS["rnade-mog"].label
    assert figures.cell(label, "test").value == 119.5
    assert figures.cell(label, "test").standard_error == pytest.approx(8.5)
    assert errors.cell(label, "by utterance").value == pytest.approx(0.4)
    gap = gaps.cell(f"{label} less {ROWS['mog'].label}, 2 splits", "over splits")
    by_split = np.array([111 - 99, 128 - 111])
    assert gap.value == by_split.mean()
    assert gap.standard_error == pytest.approx(scipy.stats.sem(by_split))
    paired = gaps.cell(f"{label} less {ROWS['mog'].label}, 2 splits", "by utterance")
    assert paired.standard_error == pytest.approx(scipy.stats.sem([11, 13, 15, 19]))
    over_mol = gaps.cell(f"{label} less {ROWS['rnade-mol'].label}, 2 splits", "over splits")
    assert over_mol.value == pytest.approx(7.0)
    assert splits.cell(ROWS["mog"].label, "split 1").value == 99.0
    assert "shrinkage 2" in splits.note


def test_two_splits_are_too_few_for_a_test_between_rows():
    scores = {"mog": [9.0, 100.0], "rnade-mog": [90.0, 110.0], "rnade-mol": [10.0, 115.0]}

    def bold(n_splits):
        records = [
            record(model, k, 0.0, [2 * values[k % 2] + k] * 2)
            for model, values in scores.items()
            for k in range(n_splits)
        ]
        figures, *_ = lay_out("sample", tuple(scores), records)
        told = "t-test" in figures.note
        return [m for m in scores if figures.cell(ROWS[m].label, "test").bold], told

    assert bold(2) == (["rnade-mog"], False)
    assert bold(4) == (["mog", "rnade-mog", "rnade-mol"], True)


def test_one_split_is_told_by_utterances_and_none_by_empty_cells():
    figures, *_ = lay_out("timit", ("mog-50",), [])
    assert figures.cell("MoG N=50", "test").value is None
    assert figures.cell("MoG N=50", "test").published == 110.4
    one = {**record("mog-50", 0, 0.0, [1.0, 2.0])}
    one["job"]["dataset"] = "timit"
    figures, *_ = lay_out("timit", ("mog-50",), [one])
    assert figures.cell("MoG N=50", "test").standard_error == pytest.approx(0.4)


def test_variants_change_one_thing_and_are_told_from_the_first_on_the_same_splits():
    first = VARIANTS["chosen"].grid[0]
    assert first == {**ROWS["rnade-mog"].grid[1], "recipe": first["recipe"]}
    assert VARIANTS["no-linear-part"].grid == [{**first, "residuals": False}]
    assert VARIANTS["layers-2"].grid == [{**first, "n_layers": 2}]
    decay = Recipe(**VARIANTS["no-decay"].grid[0]["recipe"])
    assert decay == dataclasses.replace(Recipe(**first["recipe"]), weight_decay=0.0)
    assert Recipe(**VARIANTS["sgd"].grid[0]["recipe"]) == PAPER_SPEECH
    records = [
        record("chosen", 0, 0.0, [100.0], rows=VARIANTS),
        record("chosen", 1, 0.0, [120.0], rows=VARIANTS),
        record("chosen", 2, 0.0, [500.0], rows=VARIANTS),
        record("no-decay", 0, 0.0, [99.0], rows=VARIANTS),
        record("no-decay", 1, 0.0, [117.0], rows=VARIANTS),
    ]
    table = variants.lay_out(chosen_of("sample", ("chosen", "no-decay", "sgd"), records))
    label = VARIANTS["no-decay"].label
    assert table.cell(VARIANTS["chosen"].label, "test").value == 110.0
    assert table.cell(label, "less the first").value == -2.0
    assert table.cell(label, "less the first").standard_error == pytest.approx(1.0)
    assert table.cell(label, "best epoch").value == 5.0
    assert table.cell(VARIANTS["sgd"].label, "test").value is None
    assert "over 2 splits" in table.note


@pytest.mark.parametrize("dataset", ["timit", "folder"])
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.of_the_paper])
def test_of_much_speech_the_papers_rnade_has_all_epochs(name, dataset):
    (settings,) = ROWS[name].grid_for(dataset)
    of_the_sample = copy.deepcopy(ROWS[name].grid_for("sample")[0])
    if settings["model"] == "rnade":
        recipe = Recipe(**settings["recipe"])
        assert recipe.patience == recipe.epochs == 200
        of_the_sample["recipe"]["patience"] = recipe.patience  # and nothing else differs
    assert settings == of_the_sample


def test_more_layers_are_trained(fold):
    settings = quick(VARIANTS["layers-2"].grid[0])
    ((density, _),) = fit(settings, [fold])
    assert density.members[0].module.n_layers == 2


def test_figure_2_shows_settings_of_its_rows():
    for dataset in ("sample", "timit", "folder"):
        for model, settings in shown(dataset).items():
            assert settings in ROWS[model].grid_for(dataset)


def test_every_setting_is_a_job_of_its_own():
    for name in ("table3", "table3-variants", "figure2"):
        plan = get_experiment(name).plan(Choice())
        identities = [job.identity for group in plan for job in group]
        assert len(set(identities)) == len(identities)
        json.dumps(identities)
    with pytest.raises(ValueError, match="folds must be at most 5"):
        get_experiment("table3").plan(Choice(folds=6))


def test_the_stored_tables_are_those_of_the_records(tmp_path):
    stored = RESULTS / "table3"
    shutil.copy(stored / "records.jsonl", tmp_path)
    assert main(["reproduce", "table3", "--report-only", "--quiet", "-o", str(tmp_path)]) == 0
    assert (tmp_path / "table.md").read_text() == (stored / "table.md").read_text()


def test_the_stored_tables_of_a_folder_are_those_of_its_records():
    stored = RESULTS / "table3-audiomnist"
    records = RecordFile(stored / "records.jsonl").read().values()
    tables = lay_out("folder", tuple(ROWS), list(records))
    assert "\n".join(map(to_markdown, tables)) == (stored / "table.md").read_text()


def test_jobs_of_the_stored_folder_are_planned(monkeypatch):
    stored = RESULTS / "table3-audiomnist"
    found = RecordFile(stored / "records.jsonl").read()
    names = ("on_bad_file", "by", "split_seed", "files")
    facts = {name: next(iter(found.values()))["settings"][name] for name in names}
    monkeypatch.setattr(table3, "identity", lambda *_: facts)
    plan = table3.EXPERIMENT.plan(Choice(datasets=("folder",)))
    assert set(found) <= {job.identity for group in plan for job in group}
