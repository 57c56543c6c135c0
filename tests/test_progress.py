"""What is drawn while a model trains, on terminals of any width."""

import io
import re
import sys
from types import SimpleNamespace

import numba
import pytest
from rich.console import Console

from rnade import RNADE, progress
from rnade.progress import bank_bar, job_bar, leaders, training_bar


@pytest.fixture
def drawn(monkeypatch):
    """Draw on a terminal of a width; give what is drawn, line by line."""
    file = io.StringIO()

    def on_width(width):
        terminal = Console(file=file, width=width, force_terminal=True, color_system=None)
        monkeypatch.setattr(progress, "Console", lambda **_: terminal)
        return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", file.getvalue()).splitlines()

    return on_width


def make_bank(done, left):
    return SimpleNamespace(
        members=[None] * 16,
        epochs_done=done,
        epochs_left=left,
        best=lambda n: (-123.4567, 0.00123),
    )


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("description", ["Training", "Training on all rows"])
def test_total_and_times_survive_on_narrow_terminals(drawn, width, description):
    lines = drawn(width)
    with bank_bar(description, shown=True) as on_epoch:
        on_epoch(make_bank(120, 360))
    last = [line for line in lines() if "epochs" in line][-1]
    assert last.startswith("Training")
    assert "120/480 epochs" in last
    assert len(re.findall(r"(?:\d:\d\d:\d\d|-:--:--)", last)) == 2
    assert " left" in last
    assert len(last.rstrip()) <= width
    assert ("best -123.457 nats" in last) == (
        (width >= 80 and description == "Training") or width >= 120
    )
    assert ("rate 0.0012" in last) == (width >= 120)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_other_bars_keep_total_and_times_too(drawn, width):
    lines = drawn(width)
    with training_bar("Mixture of 40 factor analysers", 200, shown=True) as on_epoch:
        on_epoch({"epoch": 50, "train": -1.5, "validation": -2.5})
        first = lines()
    with job_bar("table1-dequantised", 4000, 3999, shown=True) as on_job:
        on_job("red wine, mfa, fold 3, and a long list of all of its settings")
    for found, count in ((first, "/200 epochs"), (lines(), "4000/4000 jobs")):
        last = [line for line in found if count.split()[1] in line][-1]
        assert count in last
        assert " left" in last
        assert len(last.rstrip()) <= width


def test_nothing_is_drawn_unasked(capsys):
    with (
        bank_bar("Training", shown=False) as of_bank,
        training_bar("Training", 2, shown=False) as of_epoch,
        leaders([{}], list, shown=False) as of_search,
    ):
        assert of_bank is of_epoch is of_search is None
    assert capsys.readouterr() == ("", "")


NOTICE = "Compiling kernels for this machine, once (about 5 seconds) ..."


def test_compilation_is_told_of_once(drawn):
    lines = drawn(100)
    with bank_bar("Training", shown=True):
        for increment in (1, 2):
            assert numba.njit(lambda x, by=increment: x + by)(1) == 1 + increment
    assert "".join(lines()).count(NOTICE) == 1
    numba.njit(lambda x: x - 1)(1)
    assert "".join(lines()).count(NOTICE) == 1


def test_what_is_cached_is_not_told_of(drawn, tmp_path, monkeypatch):
    (tmp_path / "cached_kernel.py").write_text(
        "import numba\n\n@numba.njit(cache=True)\ndef double(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    lines = drawn(100)
    for told in (1, 1):
        sys.modules.pop("cached_kernel", None)
        with bank_bar("Training", shown=True):
            from cached_kernel import double

            assert double(2) == 4
        assert "".join(lines()).count(NOTICE) == told


def test_quiet_fits_say_nothing(capsys):
    import numpy as np

    X = np.random.default_rng(0).normal(size=(60, 2))
    RNADE(epochs=1, ensemble=None, random_state=0).fit(X)
    assert capsys.readouterr() == ("", "")
