"""Mixtures of densities weighted by held-out rows, and kernel densities among them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from scipy.integrate import quad
from scipy.special import logsumexp, softmax
from sklearn.neighbors import KernelDensity

from rnade.nn import kernels
from rnade.nn.ensemble import log_average
from rnade.reproduce import get_experiment
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.runner import RecordFile, pending, run_plan
from rnade.reproduce.table1.ensembles import (
    CANDIDATES,
    N_PARTS,
    WITH_KERNELS,
    Parts,
    Scored,
    _score_kernels,
    fit_ensembles,
)
from rnade.reproduce.table1.folds import Fitted, FoldRows
from rnade.reproduce.table1.repeats import has_common_value, split_by_value
from rnade.training.stacking import PRIOR_ROWS, TOLERANCE, stacking_weights

CPU = torch.device("cpu")


def kernel_scores(rows, scored, settings):
    return kernels.kernel_log_densities(
        torch.as_tensor(rows), torch.as_tensor(scored), settings
    ).numpy()


def log_densities_of_three(rng, n=300):
    """Rows of a mixture under its two components, and under a density that is worse anywhere."""
    x = np.where(rng.random(n) < 0.3, rng.normal(-1, 1, n), rng.normal(2, 0.5, n))
    parts = (stats.norm(-1, 1), stats.norm(2, 0.5), stats.norm(0, 30))
    return np.stack([part.logpdf(x) for part in parts])


@pytest.mark.parametrize("shift", [0.0, -2000.0])  # the second underflows without its logarithm
def test_weights_are_those_of_a_direct_optimiser(shift):
    given = log_densities_of_three(np.random.default_rng(0)) + shift
    C, N = given.shape

    def objective(w):
        return logsumexp(given, axis=0, b=w[:, None]).sum() + PRIOR_ROWS / C * np.log(w).sum()

    w = stacking_weights(given)
    best = optimize.minimize(lambda z: -objective(softmax(z)), np.zeros(C), tol=1e-10)
    assert w.sum() == pytest.approx(1)
    assert (w > 0).all()
    assert objective(w) >= -best.fun - TOLERANCE * (N + PRIOR_ROWS)
    np.testing.assert_allclose(w, softmax(best.x), atol=0.01)
    assert w[:2] == pytest.approx([0.3, 0.7], abs=0.1)


@pytest.mark.parametrize("weights", [[0.2, 0.5, 0.3], None])
@pytest.mark.parametrize("shift", [0.0, -800.0])  # the second is far below where exp is 0
def test_the_average_of_densities(weights, shift):
    given = log_densities_of_three(np.random.default_rng(1), 20)
    expected = np.log(np.average(np.exp(given), axis=0, weights=weights)) + shift
    logs = None if weights is None else torch.tensor(weights, dtype=torch.float64).log()
    np.testing.assert_allclose(log_average(torch.as_tensor(given + shift), logs), expected)


@pytest.mark.parametrize(
    ("of_row_3", "message"),
    [
        ([-np.inf, -np.inf], "Expected a density above 0 for every row; got 0 by all for 1 rows"),
        ([np.nan, 0.0], "Expected numbers for every row; got NaN for 1 rows"),
        ([np.inf, 0.0], "Expected finite densities for every row; got [+]inf for 1 rows"),
    ],
)
def test_a_row_that_cannot_be_scored_is_named(of_row_3, message):
    given = np.zeros((2, 5))
    given[:, 3] = of_row_3
    with pytest.raises(ValueError, match=f"{message}, the first of which is row 3"):
        stacking_weights(given)


def test_weights_of_no_densities():
    with pytest.raises(ValueError, match=r"Expected at least one density; got none\."):
        stacking_weights(np.zeros((0, 5)))


@pytest.mark.parametrize("D", [1, 2, 11])
def test_kernel_densities_are_those_of_scikit_learn(D, monkeypatch):
    monkeypatch.setattr(kernels, "N_DISTANCES", 100)  # several pieces
    rng = np.random.default_rng(D)
    rows, scored = rng.normal(size=(40, D)), rng.normal(size=(30, D))
    scored[:5] = rows[:5]  # twins
    settings = [(k, h) for k in ("gaussian", "exponential") for h in (0.03, 0.4, 2.0)]
    found = kernel_scores(rows, scored, settings)
    for own, (kernel, h) in zip(found, settings, strict=True):
        oracle = KernelDensity(kernel=kernel, bandwidth=h).fit(rows)
        np.testing.assert_allclose(own, oracle.score_samples(scored), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_kernel_densities_integrate_to_one(kernel):
    rows = np.array([[0.0], [1.0], [1.0]])

    def density(x):
        return np.exp(kernel_scores(rows, np.array([[x]]), [(kernel, 0.3)])[0, 0])

    mass, _ = quad(density, -20, 20, points=[0.0, 1.0], limit=200)
    assert mass == pytest.approx(1, abs=1e-6)


def test_kernels_that_are_not_known():
    with pytest.raises(ValueError, match="kernel must be 'gaussian' or 'exponential'; got 'box'"):
        kernel_scores(np.zeros((2, 1)), np.zeros((1, 1)), [("box", 1.0)])


def test_held_out_kernels_have_not_seen_the_part():
    rng = np.random.default_rng(0)
    rows, test, part_of = (
        rng.normal(size=(40, 2)),
        rng.normal(size=(5, 2)),
        np.arange(40) % N_PARTS,
    )
    found = _score_kernels(Parts(0, rows, part_of), test, [("gaussian", 0.5)], CPU)
    for part in range(N_PARTS):
        oracle = KernelDensity(bandwidth=0.5).fit(rows[part_of != part])
        mine = part_of == part
        np.testing.assert_allclose(found.held_out[0, mine], oracle.score_samples(rows[mine]))
    of_all = KernelDensity(bandwidth=0.5).fit(rows)
    np.testing.assert_allclose(found.test[0], of_all.score_samples(test))


def test_values_that_many_rows_have():
    others = np.column_stack([np.arange(100.0), np.arange(100) // 5, np.zeros(100)])
    others[0, 2] = 1.0  # one in a hundred
    rows = np.array([[3.0, 3.0, 0.0], [4.0, 0.5, 1.0]])
    assert has_common_value(rows, others, 2).tolist() == [[False, True, True], [False] * 3]


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_an_infinite_term_counts_for_its_own_part_alone(infinite):
    is_common = np.array([[True, False], [True, True]])
    terms = np.array([[1.0, infinite], [2.0, 3.0]])
    assert split_by_value(terms, is_common) == (3.0, infinite)
    assert split_by_value(terms, ~is_common) == (infinite, 3.0)


def fold_with_twins(share, n=240):
    """Rows in four dimensions; a share of the test and training rows occur twice."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 4))
    again = rng.choice(n, int(share * n), replace=False)
    rows = rng.permutation(np.concatenate([rows, rows[again]]))
    return FoldRows(0, rows[: n // 2], rows[n // 2 : 2 * n // 3], rows[2 * n // 3 :])


@pytest.mark.parametrize(("share", "gains"), [(0.5, True), (0.0, False)])
def test_kernels_gain_where_rows_are_repeated(share, gains):
    fold = fold_with_twins(share)
    (fitted,) = fit_ensembles([fold], CPU, True)
    with_kernels = fitted.also[WITH_KERNELS]
    gain = with_kernels.scores.mean() - fitted.scores.mean()
    everything = [tuple(row) for row in fold.all_training]
    new = np.array([tuple(row) not in everything for row in fold.test])
    for found in (fitted, with_kernels):
        assert found.details["n_twins"] == (~new).sum()
        assert found.details["without_twins"] == pytest.approx(found.scores[new].mean())
    assert (new.mean() < 0.9) == gains
    assert gain > 0.3 if gains else abs(gain) < 0.3
    # Kernels add candidates: what is left out can only be as likely as before, but for the prior.
    assert with_kernels.details["held_out"] > fitted.details["held_out"] - 0.01


def test_where_every_test_row_has_a_twin_no_others_have_a_mean():
    fold = fold_with_twins(0.0)
    (fitted,) = fit_ensembles([replace(fold, test=fold.train[:7])], CPU, True)
    assert fitted.details["n_twins"] == 7
    assert fitted.details["without_twins"] is None


def test_an_ensemble_says_what_it_is_made_of():
    fold = fold_with_twins(0.0)
    (fitted,) = fit_ensembles([fold], CPU, True)
    made_of = fitted.details["weights"]
    assert len(made_of) == len(CANDIDATES[::2])
    assert sum(part["weight"] for part in made_of) == pytest.approx(1, abs=1e-3)
    assert [part["weight"] for part in made_of] == sorted(
        (part["weight"] for part in made_of), reverse=True
    )
    # The log of a weighted mean is at least the weighted mean of logs.
    assert fitted.scores.mean() >= sum(p["weight"] * p["test"] for p in made_of) - 1e-3


def test_a_candidate_that_diverged_is_left_out():
    finite = np.zeros((2, 3))
    broken = finite.copy()
    broken[0, 1] = np.nan
    kept = Scored(["a", "b"], broken, finite).usable()
    assert kept.names == ["b"]
    assert kept.held_out.shape == kept.test.shape == (1, 3)


def test_test_rows_leave_no_candidate_out():
    finite = np.zeros((2, 3))
    broken = finite.copy()
    broken[0, 1] = np.nan
    with pytest.raises(ValueError, match="got nan for row 1 from a"):
        Scored(["a", "b"], finite, broken).usable()
    # What its held-out rows leave out may have any test scores.
    assert Scored(["a", "b"], broken, broken).usable().names == ["b"]


def test_both_rows_come_of_one_fit(monkeypatch, tmp_path):
    """One group of jobs, one fit a data set; each record has its own scores; it resumes."""
    fits = []

    def fit(folds, device, quick):
        for fold in folds:
            fits.append(fold.number)
            yield Fitted(fold.test[:, 0], {}, {WITH_KERNELS: Fitted(fold.test[:, 1], {})})

    from rnade.data import UciSet
    from rnade.reproduce.core.experiment import Context
    from rnade.reproduce.table1 import columns

    X = np.random.default_rng(0).normal(size=(100, 2))
    experiment = get_experiment("table1")
    monkeypatch.setattr(
        type(experiment), "load", lambda *_: UciSet("boston", ("a", "b"), X, {}, None, None)
    )
    for name in ("rnade-ensemble", WITH_KERNELS):
        column = columns.COLUMNS[name]
        object_with_fit = type(column)(column.label, fit, column.settings)
        monkeypatch.setitem(columns.COLUMNS, name, object_with_fit)
    choice = Choice(False, ("boston",), ("rnade-ensemble", WITH_KERNELS, "gaussian"), 2)
    plan = experiment.plan(choice)
    assert [[(j.key["model"], j.key["fold"]) for j in group] for group in plan] == [
        [("gaussian", 0), ("gaussian", 1)],
        [(m, k) for k in (0, 1) for m in ("rnade-ensemble", WITH_KERNELS)],
    ]
    records = RecordFile(tmp_path / "records.jsonl")
    context = Context(None, CPU)
    made = list(
        run_plan(plan[1:], lambda jobs: experiment.execute(jobs, context), records, command="")
    )
    assert fits == [0, 1]
    assert pending(plan[1:], records) == []
    table = UciSet("boston", ("a", "b"), X, {}, None, None)
    for k in (0, 1):
        test = FoldRows.of(table, table.folds(10, seed=0)[k], k).test
        own = {r["job"]["model"]: r["result"]["test"] for r in made if r["job"]["fold"] == k}
        assert own == pytest.approx(
            {"rnade-ensemble": test[:, 0].mean(), WITH_KERNELS: test[:, 1].mean()}
        )
