"""FVBN on tables of any kind: a network for each column, which it predicts from any others."""

from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

from rnade import FVBN, load
from rnade.batch import Batch
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.nn.any_order import ROLE, AnyOrderModule
from rnade.nn.columns_apart import ColumnNetworks
from rnade.nn.table import TableDensity, encoded
from rnade.report import study
from rnade.training.any_order import with_places
from tests.test_any_order import parts, table
from tests.test_links import found
from tests.test_links import table as linked_table
from tests.test_mixed import SMALL, frame


def make(columns: list[ColumnCells], seed: int = 0, **more: object) -> ColumnNetworks:
    settings = {"n_hidden": 7, "n_layers": 2, "n_components": 2, "dropout": 0.0} | more
    generator = torch.Generator().manual_seed(seed)
    module = ColumnNetworks(columns, generator=generator, **settings).double()
    with torch.no_grad():
        module.V.normal_(0, 0.5, generator=generator)
    return module


def alone(bank: ColumnNetworks, d: int) -> AnyOrderModule:
    """The network of one column as one of those that predict all columns."""
    settings = {"n_hidden": 7, "n_layers": 2, "n_components": 2, "dropout": bank.dropout}
    links = [link for own in bank.links for link in own]
    module = AnyOrderModule(bank.columns, **settings, links=links).double()
    at, R = module.layout.outputs_of(d), bank.n_links
    with torch.no_grad():
        for name in ("W", "c", "U", "Q", "u"):
            getattr(module, name).copy_(getattr(bank, name)[d : d + 1])
        module.V[..., at] = bank.V[d, :, : at.stop - at.start]
        module.b[..., at] = bank.b[d, :, : at.stop - at.start]
        if R:
            module.G[..., d * R : (d + 1) * R] = bank.G[d]
            module.g[..., d * R : (d + 1) * R] = bank.g[d]
    return module


@pytest.fixture(scope="module")
def fitted() -> FVBN:
    return FVBN(**SMALL).fit(frame())


# ------------------------------------------------------------------ networks


@pytest.mark.parametrize("linked", [False, True])
def test_each_column_has_the_density_that_its_own_network_gives_it(linked):
    columns, X = linked_table(n=60) if linked else table()
    links = found(columns, X) if linked else []
    bank, D = make(columns, links=links), len(columns)
    density = TableDensity(columns, bank, torch.arange(D)[None])
    x = density.cells(X)
    seen = x[..., -1] > 0
    order = list(range(D))[::-1]
    terms = bank.log_conditionals(x[..., :-1], seen, order)
    assert terms.shape == (1, *X.shape)
    for d in range(D):
        own = alone(bank, d)
        expected = own.log_conditionals(x[..., :-1], seen, order)[..., d]
        torch.testing.assert_close(terms[..., d], expected)
        z = own.conditionals(x, seen & (torch.arange(D) != d), d)
        torch.testing.assert_close(bank.conditionals(x, seen & (torch.arange(D) != d), d), z)
        h = bank.hidden(x, seen & (torch.arange(D) != d))
        torch.testing.assert_close(bank.head(h, d), z)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("sign", [1, -1])  # training gives minus the weights
def test_the_loss_and_its_gradient_are_those_of_networks_alone(linked, sign):
    columns, X = linked_table(n=60) if linked else table(n=60)
    links = found(columns, X) if linked else []
    bank = make(columns, links=links, dropout=0.3)
    x = encoded(columns, X, links)
    x = with_places(x[..., :-1], x[..., -1] > 0, torch.Generator().manual_seed(1))
    D = len(columns)
    weights = sign * torch.linspace(0.1, 2, 60, dtype=torch.float64)[None]
    value = bank.weighted_log_likelihood(Batch(x.expand(D, *x.shape), weights.expand(D, 60)))
    gradient = torch.autograd.grad(value.sum(), [bank.V, bank.W, bank.U])
    place = x[..., ROLE]
    for d in range(D):
        own, told = alone(bank, d), x.clone()
        before = (place > 0) & (place < place[:, d : d + 1])
        told[..., ROLE] = torch.where(before, -1.0, 0.0)
        told[:, d, ROLE] = (place[:, d] > 0).double()
        expected = own.weighted_log_likelihood(Batch(told[None], weights))
        torch.testing.assert_close(value[d], expected[0])
        at = own.layout.outputs_of(d)
        found_V, found_W, found_U = torch.autograd.grad(expected, [own.V, own.W, own.U])
        size = at.stop - at.start
        torch.testing.assert_close(gradient[0][d, :, :size], found_V[0, :, at])
        assert (gradient[0][d, :, size:] == 0).all()
        torch.testing.assert_close(gradient[1][d], found_W[0])
        torch.testing.assert_close(gradient[2][d], found_U[0])
    scores = bank.log_prob(x)
    plain = make(columns, links=links).weighted_log_likelihood(
        Batch(x.expand(D, *x.shape), torch.ones(D, 60, dtype=torch.float64))
    )
    torch.testing.assert_close(scores.sum(1), plain)


def test_terms_of_random_places_are_log_densities_along_orders_on_average():
    columns, X = table(n=4)
    bank = make(columns)
    cells, seen = parts(columns, X)
    along = [
        bank.log_conditionals(cells, seen, list(order)).sum(-1)[0]
        for order in permutations(range(3))
    ]
    n = 30_000
    x = with_places(cells.repeat(n, 1, 1), seen.repeat(n, 1), torch.Generator().manual_seed(0))
    assert set(x[..., ROLE][seen.repeat(n, 1)].unique().tolist()) == {1.0, 2.0, 3.0}
    with torch.no_grad():
        sums = bank.log_prob(x).sum(0).view(n, 4)
    error = sums.std(0) / n**0.5
    assert ((sums.mean(0) - torch.stack(along).mean(0)).abs() < 5 * error + 1e-9).all()


def test_no_weight_is_shared():
    columns, X = table()
    cells, seen = parts(columns, X)
    bank = make(columns)
    terms = bank.log_conditionals(cells, seen, [0, 1, 2])[0]
    with torch.no_grad():
        for _, t in bank.named_parameters():
            t[1] += 0.1
    changed = bank.log_conditionals(cells, seen, [0, 1, 2])[0]
    torch.testing.assert_close(changed[:, [0, 2]], terms[:, [0, 2]], rtol=0, atol=0)
    assert (changed[:, 1] != terms[:, 1]).any()


def test_some_networks_of_a_bank_are_those_of_their_columns():
    """As training leaves them when others have stopped."""
    columns, X = table()
    x = encoded(columns, X)
    x = with_places(x[..., :N_FEATURES], x[..., -1] > 0, torch.Generator().manual_seed(0))
    bank = make(columns)
    scores = bank.log_prob(x)
    torch.testing.assert_close(bank[[2, 0]].log_prob(x), scores[[2, 0]])
    again = ColumnNetworks.stack([bank[2], bank[0], bank[1]])
    torch.testing.assert_close(again.log_prob(x), scores[[2, 0, 1]])


def test_densities_sum_to_1_and_draws_follow_them():
    rng = np.random.default_rng(0)
    columns = [ColumnCells.of_levels(rng.integers(0, 2, 50).astype(float), 2) for _ in range(3)]
    density = TableDensity(columns, make(columns), torch.tensor([[0, 1, 2], [2, 1, 0]]))
    rows = np.stack(np.meshgrid([0, 1, 2], [0, 1, 2], [0, 1, 2]), -1).reshape(-1, 3).astype(float)
    with torch.no_grad():
        p = density.log_prob(density.cells(rows)).exp().numpy()
    assert p.sum() == pytest.approx(1)
    X = density.sample(20_000, torch.Generator().manual_seed(0))
    known = (rows < 2).all(1)
    counts = [(X == row).all(1).sum() for row in rows[known]]
    assert stats.chisquare(counts, p[known] / p[known].sum() * len(X)).pvalue > 1e-3


# ------------------------------------------------------------------ FVBN


def test_samples_pass_for_the_table(fitted):
    real, drawn = frame(), fitted.sample(200, random_state=0)
    assert drawn.dtypes.equals(real.dtypes)
    assert set(drawn.city) <= {"Oslo", "Rome", "Bonn"}
    assert drawn.rooms.between(real.rooms.min(), real.rooms.max()).all()
    assert not drawn.isna().any().any()
    pd.testing.assert_frame_equal(drawn, fitted.sample(200, random_state=0))


def test_scores_are_of_what_is_observed(fitted):
    rows = frame()[:6].astype({"rooms": "Int64", "owner": "boolean"})
    complete = fitted.score_samples(rows)
    rows.loc[1] = pd.NA
    scores = fitted.score_samples(rows)
    assert scores[1] == 0
    np.testing.assert_array_equal(np.delete(scores, 1), np.delete(complete, 1))
    np.testing.assert_allclose(fitted.log_conditionals(rows).sum(1), scores)


def test_each_column_keeps_its_own_epoch(fitted):
    assert [c["n_hidden"] for c in fitted.chosen_] == [8] * 7
    assert fitted.network_["n_networks"] == 7
    assert fitted.best_epoch_ == max(c["epoch"] for c in fitted.chosen_)
    best = sum(c["validation"] for c in fitted.chosen_)
    assert best >= max(row["validation"] for row in fitted.history_) - 1e-9


def test_what_is_loaded_equals_what_was_saved(tmp_path, fitted):
    fitted.save(tmp_path / "m.rnade")
    again = load(tmp_path / "m.rnade")
    np.testing.assert_array_equal(again.score_samples(frame()), fitted.score_samples(frame()))
    pd.testing.assert_frame_equal(*(m.sample(9, random_state=1) for m in (again, fitted)))
    assert (again.schema_, again.network_) == (fitted.schema_, fitted.network_)
    assert again.chosen_ == fitted.chosen_


def test_a_killed_fit_goes_on_to_the_same_numbers(tmp_path, fitted):
    for _ in range(2):
        model = FVBN(**SMALL, checkpoint=tmp_path).fit(frame())
        np.testing.assert_array_equal(model.score_samples(frame()), fitted.score_samples(frame()))


def test_questions_are_answered(fitted):
    asked = fitted.conditional("city", {"rooms": 9})
    assert asked.probabilities().sum() == pytest.approx(1, abs=0.05)
    assert (fitted.sample(20, random_state=0, given={"city": "Rome"}).city == "Rome").all()
    for how in ("mean", "draw"):
        assert not fitted.impute(frame(), how, random_state=0).isna().any().any()
    rows = frame()[:9]
    # A row's log density given nothing is its log density.
    np.testing.assert_allclose(fitted.log_density(rows), fitted.score_samples(rows))
    assert fitted.as_predictor("owner").predict(rows).shape == (9,)


def test_what_goes_together_is_learned():
    """Rooms given the city: unseen rows are likelier than by the rooms alone."""
    model = FVBN(random_state=0).fit(frame(800))
    new = frame(400, seed=1)[["city", "rooms"]].dropna()
    given = model.log_density(new, given=["city"])
    assert (given - model.log_density(new[["rooms"]])).mean() > 0.3


def test_missing_cells_are_learned_and_drawn_if_asked():
    gaps = frame(300)
    gaps.loc[gaps.rooms > 5, "income"] = np.nan
    model = FVBN(random_state=0, n_hidden=16, missing="informative").fit(gaps)
    drawn = model.sample(1500, random_state=0)
    gone = drawn.income.isna()
    assert gone.mean() == pytest.approx(gaps.income.isna().mean(), abs=0.08)
    assert drawn.rooms[gone].mean() > drawn.rooms[~gone].mean() + 1


def test_pit_is_uniform():
    model = FVBN(random_state=0, n_hidden=16).fit(frame(800))
    new = frame(500, seed=2)
    u = model.pit(new, random_state=0)
    assert (np.isnan(u) == new.isna().to_numpy()).all()
    for column in u.T:
        assert stats.kstest(column[~np.isnan(column)], "uniform").statistic < 0.12


def test_orders_may_be_given():
    raster, given = (
        FVBN(**SMALL, order=order).fit(frame()) for order in ("raster", [6, 5, 4, 3, 2, 1, 0])
    )
    assert raster.module_.orders.tolist() == [list(range(7))]
    assert given.module_.orders.tolist() == [[6, 5, 4, 3, 2, 1, 0]]
    auto = FVBN(**SMALL).fit(frame())
    assert len(auto.module_.orders) == 16


def test_sums_of_columns_are_filled_by_links():
    _, X = linked_table(n=600)
    sums = pd.DataFrame(X[:, 2:], columns=["a", "b", "total"]).astype("Int64")
    model = FVBN(n_hidden=32, epochs=8, random_state=0).fit(sums)
    asked = pd.DataFrame({"a": [3, 20], "b": [4, 9], "total": [None, None]}).astype("Int64")
    assert model.impute(asked, "likeliest")["total"].tolist() == [7, 29]


def test_plain_tables_have_the_networks_that_they_had():
    X = np.random.default_rng(0).normal(size=(80, 2))
    some = {"n_hidden": [2, 4], "epochs": 3, "random_state": 0}
    auto, real = (FVBN(**some, columns=columns).fit(X) for columns in ("auto", "real"))
    raster = FVBN(**some, order="raster").fit(X)
    for model in (real, raster):
        np.testing.assert_array_equal(model.score_samples(X), auto.score_samples(X))
    with pytest.raises(ValueError, match="FVBN of complete real-valued columns answers no.*RNADE"):
        auto.conditional("x1", {"x2": 0.0})
    assert not auto.answers_questions
    given = pl.DataFrame(X, schema=["a", "b"])
    assert isinstance(FVBN(**some).fit(given).sample(2), pl.DataFrame)


BAD = {
    "hidden": ({"n_hidden": [4, 8]}, r"n_hidden=\[4, 8\], a choice .* is for .* Give one number"),
    "components": ({"n_components": [1, 2]}, r"n_components=\[1, 2\], .* Give one number"),
    "search": ({"search": [{"n_hidden": 3}]}, "search=.* is for tables .*columns='real'"),
    "recipe": ({"recipe": "paper"}, "recipe='paper' is for tables of complete real-valued"),
    "retrain": ({"retrain": True}, "retrain=True is for tables of complete real-valued columns"),
    "order": ({"order": "random!"}, "order must be 'auto', 'raster', 'random' or a permutation"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_of_plain_tables_are_refused(name):
    settings, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        FVBN(**settings).fit(frame())


def test_a_report_can_be_written(fitted):
    page = study(fitted, frame(), random_state=0)
    assert page.fitted.kind == "FVBN"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_fits_and_scores_as_the_cpu_scores(tmp_path):
    model = FVBN(**SMALL, device="cuda").fit(frame(400))
    assert model.history_[-1]["validation"] > model.history_[0]["validation"]
    model.save(tmp_path / "m.rnade")
    there = load(tmp_path / "m.rnade", device="cpu")
    np.testing.assert_allclose(
        model.score_samples(frame()), there.score_samples(frame()), rtol=1e-6
    )
