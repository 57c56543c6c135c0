"""Pictures for matplotlib: they show what was computed, on the axes given."""

import inspect
import re
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from rnade import NADE, RNADE, plot
from rnade.report import study

NAMES = ["a", "b", "c"]


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    return pd.DataFrame(np.column_stack([a, a + 0.3 * b, rng.normal(size=n)]), columns=NAMES)


@pytest.fixture(scope="module")
def model():
    settings = {"n_hidden": 8, "n_components": 2, "epochs": 5, "random_state": 0, "device": "cpu"}
    return RNADE(ensemble=None, **settings).fit(rows())


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


ONE_AXES = {
    "calibration": lambda model, ax: plot.calibration(model, rows(), ["b"], ax=ax),
    "marginals": lambda model, ax: plot.marginals(model, rows(), [1], n_samples=100, ax=ax),
    "correlation": lambda model, ax: plot.correlation(model, rows(), n_samples=100, ax=ax),
    "scores": lambda model, ax: plot.scores(model, rows(), ax=ax),
    "learning_curve": lambda model, ax: plot.learning_curve(model, ax=ax),
    "gains": lambda model, ax: plot.gains(model, rows(), ax=ax),
}


def test_scores_and_their_thresholds_are_of_the_same_models():
    """Of those that left rows out, where the average was trained on all rows in the end."""
    model = RNADE(n_hidden=8, epochs=20, random_state=0, questions=False).fit(rows())
    assert model.judges_ is not None
    new = rows(4000, seed=1)
    display = plot.ScoresDisplay.from_estimator(model, new)
    bound = display.thresholds[0.05]
    found = (model.judging.score_samples(new) < bound).mean()
    np.testing.assert_array_equal(display.found.counts, study(model, new).oddness.histogram.counts)
    assert found == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("name", ONE_AXES)
def test_axes_given_are_axes_returned(model, name):
    _, ax = plt.subplots()
    n_figures = len(plt.get_fignums())
    assert ONE_AXES[name](model, ax) is ax
    assert len(plt.get_fignums()) == n_figures
    assert ax.has_data()
    assert ax.get_xlabel()


@pytest.mark.parametrize("name", ONE_AXES)
def test_without_axes_a_figure_is_made(model, name):
    ax = ONE_AXES[name](model, None)
    assert isinstance(ax, mpl.axes.Axes)
    ax.figure.canvas.draw()


def test_several_columns_have_an_axes_each(model):
    axes = plot.calibration(model, rows())
    assert [ax.get_title() for ax in axes] == NAMES
    _, given = plt.subplots(1, 2)
    assert list(plot.marginals(model, rows(), ["c", "a"], n_samples=50, ax=given)) == list(given)
    with pytest.raises(ValueError, match="Expected 3 axes, one a column; got 2"):
        plot.calibration(model, rows(), ax=given)


def test_pairs(model):
    axes = plot.pairs(model, rows(), n_points=60)
    assert axes.shape == (3, 3)
    assert axes[0, 0].texts[0].get_text() == "a"
    real = axes[1, 0].collections[0].get_offsets()
    assert len(real) == 60
    assert {tuple(row) for row in np.asarray(real)} <= {
        tuple(row) for row in rows()[["a", "b"]].to_numpy()
    }
    again = plot.pairs(model, rows(), ["c", "b"], axes=plt.subplots(2, 2)[1])
    assert again.shape == (2, 2)
    with pytest.raises(ValueError, match=r"Expected axes of shape \(3, 3\); got \(2, 2\)"):
        plot.pairs(model, rows(), axes=again)


def test_pictures_show_what_the_report_finds(model):
    found = study(model, rows())
    bars = plot.gains(model, rows()).patches
    assert [bar.get_width() for bar in bars] == [gain.gain for gain in found.gains]
    held_out = rows().iloc[model.fitted_rows_.held_out]
    display = plot.CalibrationDisplay.from_estimator(model, held_out, "a")
    np.testing.assert_array_equal(display.found.counts, found.calibration[0].counts)
    display = plot.ScoresDisplay.from_estimator(model, rows())
    np.testing.assert_array_equal(display.found.counts, found.oddness.histogram.counts)
    assert display.thresholds == {0.05: found.oddness.thresholds[0].log_density}
    curve = plot.learning_curve(model).lines[1]
    np.testing.assert_allclose(curve.get_ydata(), found.fitted.curve.held_out)
    # In the data's units: the best epoch's is the held-out score.
    assert curve.get_ydata()[model.best_epoch_] == pytest.approx(
        model.held_out_score().mean, abs=1e-4
    )


def test_displays_draw_again(model):
    display = plot.MarginalDisplay.from_estimator(model, rows(), "a", n_samples=50)
    first = display.ax_
    assert display.plot().ax_ is not first
    assert display.figure_ is display.ax_.figure


def test_arrays_and_binary_models():
    X = (np.random.default_rng(0).uniform(size=(100, 2)) < 0.5).astype(float)
    model = NADE(epochs=2, random_state=0).fit(X)
    assert len(plot.calibration(model, X)) == 2
    assert len(plot.marginals(model, X, n_samples=20)) == 2


def test_columns_that_are_not_there(model):
    with pytest.raises(ValueError, match="no column 'z'; it has a, b, c"):
        plot.calibration(model, rows(), ["z"])
    with pytest.raises(ValueError, match="from 0 to 2; got 3"):
        plot.marginals(model, rows(), [3])


def test_bits_are_compared_as_the_model_sees_them():
    X = np.random.default_rng(0).choice([0.0, 7.0], size=(200, 2))  # above 0 is a 1
    model = NADE(epochs=2, random_state=0).fit(X)
    found = plot.MarginalDisplay.from_estimator(model, X, 0, n_samples=2000).found
    assert found.distance < 0.15
    np.testing.assert_allclose(found.real.sum(), 1)


@pytest.mark.parametrize("name", plot.__all__)
def test_what_is_drawn_is_documented(name):
    """Functions made of displays have the display's parameters, by name and in words."""
    function = getattr(plot, name)
    if inspect.isclass(function):
        return
    assert function.__name__ == name
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter} :", function.__doc__)
    assert "Returns\n" in inspect.getdoc(function)


def test_models_without_a_history(model):
    class Bare:
        pass

    with pytest.raises(ValueError, match="Bare has no history_"):
        plot.learning_curve(Bare())


def test_without_matplotlib_the_message_says_what_to_install():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from rnade.plot.base import pyplot\n"
        "try:\n    pyplot()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'rnade[plot]'" in done.stdout, done.stderr
