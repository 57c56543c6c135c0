"""Table 1: the paper's protocol, its variants, ensembles, other libraries, dequantised data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.neighbors import KernelDensity

from rnade.data import UciSet
from rnade.reproduce import get_experiment
from rnade.reproduce.core.experiment import Choice, Context
from rnade.reproduce.table1 import peers
from rnade.reproduce.table1.columns import COLUMNS
from rnade.reproduce.table1.dequantised import dequantised, rounding_steps
from rnade.reproduce.table1.ensembles import fit_ensembles
from rnade.reproduce.table1.families import VARIANT_FAMILIES
from rnade.reproduce.table1.folds import FoldRows
from rnade.reproduce.table1.protocol import (
    PROTOCOLS,
    Protocol,
    fit_paper,
    paper_members,
    retrained,
    search,
)
from rnade.reproduce.table1.variants import (
    OFTEN,
    PART,
    VARIANTS,
    _without_retraining,
    by_rule,
    nats_by_value,
)
from rnade.training import PAPER_GRID

CPU = torch.device("cpu")
COVARIANCE = np.array([[1.0, 0.8], [0.8, 1.0]])


def gaussian_fold(number=0, n=300):
    """Rows of a known density."""
    rng = np.random.default_rng(number)
    rows = rng.multivariate_normal(np.zeros(2), COVARIANCE, size=n)
    return FoldRows(number, rows[: n // 2], rows[n // 2 : 2 * n // 3], rows[2 * n // 3 :])


FOLDS = [gaussian_fold(0), gaussian_fold(1)]


@pytest.mark.parametrize("fit", [lambda *a: fit_paper("gaussian", *a), fit_ensembles])
def test_models_learn_a_known_density(fit):
    """The quick versions are no worse than independent columns, and no better than the truth."""
    for fold, fitted in zip(FOLDS, fit(FOLDS, CPU, True), strict=True):
        truth = stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(fold.test)
        apart = stats.norm.logpdf(fold.test).sum(1)
        assert fitted.scores.shape == truth.shape
        assert apart.mean() - 0.1 < fitted.scores.mean() < truth.mean() + 0.05


def test_the_grid_is_searched_in_every_fold():
    protocol = Protocol(PART[:3], recipe={"epochs": 3})
    members = paper_members("laplace", FOLDS, CPU, protocol)
    assert [m.source.seed for m in members] == [0, 1] * 3
    assert [(m.recipe.learning_rate, m.recipe.weight_decay) for m in members[::2]] == [
        setting[1:] for setting in PART[:3]
    ]
    assert not any(m.recipe.scale_mean_gradient for m in members)
    found = search("laplace", FOLDS, CPU, protocol)
    for fold, searched in zip(FOLDS, found, strict=True):
        for c, trial in enumerate(searched.trials):
            with torch.no_grad():
                scores = trial.module.double().log_prob(torch.as_tensor(fold.test))
            assert searched.test[c] == pytest.approx(float(scores.mean()), rel=1e-9)


def test_table1_has_the_authors_momentum_and_start():
    K, train = PAPER_GRID["n_components"][0], FOLDS[0].train
    spacing = np.ptp(train, axis=0) / (K + 1)
    # The scale of a Laplace has as much deviation as that of a Gaussian, spacing.
    for family, expected in (("gaussian", spacing), ("laplace", np.log(spacing / np.sqrt(2)))):
        member = paper_members(family, FOLDS[:1], CPU, PROTOCOLS[family])[0]
        assert member.recipe.momentum == 0.9
        assert member.module.decayed() == ["W"]
        scales = member.module.b.detach().numpy()[0, :, 2 * K :]
        np.testing.assert_allclose(scales, np.repeat(expected[:, None], K, 1), rtol=1e-5)


def test_the_searched_model_stands_where_retraining_breaks():
    """A rate that throws the second training far back, beside one at which it is well."""
    protocol = Protocol([(2, 0.025, 0.0)], recipe={"epochs": 30})
    searched = search("gaussian", FOLDS, CPU, protocol)
    models = [found.trials[0] for found in searched]
    mad = replace(protocol, grid=[(2, 1e3, 0.0)])
    assert retrained("gaussian", FOLDS, CPU, mad, searched, [0, 0]) == models
    for again, model in zip(
        retrained("gaussian", FOLDS, CPU, protocol, searched, [0, 0]), models, strict=True
    ):
        assert again is not model
        assert again.train_at_best >= min(model.train_at_best, model.best_score)


def test_variants_are_what_they_say():
    """Each differs from the paper's protocol, and starts where it says."""
    settings = [
        str(v.protocol.settings(v.family)) + v.family + str(v.fold_seed) for v in VARIANTS.values()
    ]
    assert len(set(settings)) == len(settings)
    for K, rate, decay in PART:
        assert K in PAPER_GRID["n_components"]
        assert rate in PAPER_GRID["learning_rate"]
        assert decay in PAPER_GRID["weight_decay"]

    def start(name):
        return paper_members("gaussian", FOLDS[:1], CPU, VARIANTS[name].protocol)[0].module

    K = PART[0][0]
    train = FOLDS[0].train
    spacing = np.ptp(train, axis=0) / (K + 1)
    for name, expected in (("paper", np.log(spacing)), ("broad", spacing)):
        biases = start(name).b.detach().numpy()[0, :, 2 * K :]
        np.testing.assert_allclose(biases, np.repeat(expected[:, None], K, 1), rtol=1e-5)
    assert start("released").decayed() == ["W", "c"]
    assert start("decay-all").decayed() == ["W", "c", "V"]
    assert start("paper").decayed() == ["W"]


def test_nats_are_told_apart_by_whether_training_rows_repeat_a_value():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(20, 2)), rng.normal(size=(4, 2))
    # A value of column 0 that is repeated, and one of column 1 that is just not.
    train[:OFTEN, 0], train[: OFTEN - 1, 1] = 0.5, 0.7
    test[:3, 0], test[:3, 1] = 0.5, 0.7
    terms = rng.normal(size=(4, 2))
    told = nats_by_value(terms, FoldRows(0, train[:12], train[12:], test))
    assert told["n_repeated"] == 3 / 4
    assert told["repeated"] == pytest.approx(terms[:3, 0].sum() / 4)
    assert told["repeated"] + told["others"] == pytest.approx(terms.sum(1).mean())
    terms[0, 0] = np.inf
    infinite = nats_by_value(terms, FoldRows(0, train[:12], train[12:], test))
    assert infinite == told | {"repeated": np.inf}


@pytest.mark.parametrize(("skipped", "has"), [([3, 0], True), ([3, 1], False)])
def test_a_fold_without_a_clean_run_has_no_score_of_clean_runs(skipped, has):
    result = {"rules": {"paper": 1.0, "no_skips": -5.0}, "grid_skipped": skipped, "median": 2.0}
    scores = by_rule(result)
    assert ("no_skips" in scores) == has
    assert (scores["paper"], scores["median"]) == (1.0, 2.0)
    del result["rules"]["no_skips"]
    assert "no_skips" not in by_rule(result)


@pytest.mark.parametrize("clean", [0, 1, None])
def test_clean_runs_are_scored_where_there_are_any(clean):
    protocol = Protocol(PART[:2], recipe={"epochs": 1})
    (found,) = search("gaussian", FOLDS[:1], CPU, protocol)
    found = replace(found, skipped=np.array([int(c != clean) for c in range(2)]))
    scores = _without_retraining(found, 0, 0, FOLDS[0])
    assert scores.get("no_skips") == (None if clean is None else found.test[clean])


@pytest.mark.parametrize("name", ["gaussian", "laplace", *VARIANT_FAMILIES])
def test_only_gaussians_have_the_papers_gradient_of_the_means(name):
    is_gaussian = name not in ("laplace", "laplace-softplus")
    assert Protocol().paper_recipe(name).scale_mean_gradient == is_gaussian


def test_other_libraries_are_chosen_by_validation_and_fitted_to_all_rows():
    settings = [{"bandwidth": 0.01}, {"bandwidth": 0.4}]
    fitted = list(peers.fit_peer(peers.fit_kernels, settings, settings, FOLDS, CPU, True))
    for fold, found in zip(FOLDS, fitted, strict=True):
        assert found.details["chosen"] == {"bandwidth": 0.4}
        oracle = KernelDensity(bandwidth=0.4).fit(np.concatenate([fold.train, fold.validation]))
        np.testing.assert_allclose(found.scores, oracle.score_samples(fold.test))


def test_processes_give_what_one_gives():
    settings = [{"n_components": 1}, {"n_components": 2}]
    alone, together = (
        list(peers.fit_peer(peers.fit_mixture, settings, settings, FOLDS, CPU, quick))
        for quick in (True, False)
    )
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=1e-9)


@pytest.mark.changes_global_state
@pytest.mark.parametrize("kind", ["NSF", "MAF"])
def test_flows_learn_a_known_density(kind):
    pytest.importorskip("zuko")
    fold = gaussian_fold(0, 900)
    settings = {"transforms": 2, "learning_rate": 5e-3}
    scores, epochs = peers.fit_flow(kind, settings, fold.train, fold.validation, 0)
    truth = stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(fold.validation)
    assert 0 < epochs <= peers.EPOCHS
    assert scores.mean() == pytest.approx(truth.mean(), abs=0.1)


def test_a_missing_library_leaves_its_column_out(monkeypatch):
    monkeypatch.setattr("rnade.reproduce.table1.table.find_spec", lambda name: None)
    (group,) = get_experiment("table1").plan(Choice(True, ("boston",), ("zuko-nsf",)))
    with pytest.warns(UserWarning, match=r"zuko is not installed, so zuko NSF is left out"):
        assert list(get_experiment("table1").execute(group, Context(None, CPU))) == []


def test_steps_of_rounding():
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    columns = [np.round(x, 1), np.round(100 * x, -1), np.round(1e-4 * x, 6), x]
    columns.append(np.where(np.arange(1000) == 5, 1 / 3, np.round(x, 2)))  # one odd value
    np.testing.assert_allclose(rounding_steps(np.column_stack(columns)), [0.1, 10, 1e-6, 0, 0.01])


def test_dequantised_tables():
    """Twins go, values stay within half a step, and the authors' folds stay what they were."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(400, 2)), 1)
    order = rng.permutation(400)
    table = UciSet("red-wine", ("a", "b"), X, {}, rng.integers(0, 10, 400), order)
    other = dequantised(table, 0)
    unique, first = np.unique(X, axis=0, return_index=True)
    assert len(other.X) == len(unique)
    assert len(np.unique(other.X[:, 0])) == len(unique)
    kept = np.sort(first)
    difference = other.X - X[kept]
    assert np.abs(difference).max() <= 0.05
    assert difference.std() == pytest.approx(0.1 / math.sqrt(12), rel=0.05)
    for k, fold in enumerate(other.folds()):
        assert (table.blocks[kept[fold.test]] == k).all()
        assert len(fold.test) + len(fold.validation) + len(fold.train) == len(other.X)


def test_every_column_says_what_it_depends_on():
    for name, column in COLUMNS.items():
        assert column.label
        jobs = get_experiment("table1").plan(Choice(False, ("boston",), (name,)))[0]
        assert jobs[0].settings.items() >= column.settings.items()
