"""Image patches: the rows of Table 2, the remarks beside it, and Figures 1 and 3."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.special
import scipy.stats
import torch
from torch import Generator

from rnade.cli import main
from rnade.columns.linear import LinearPart
from rnade.data.patches import Bsds300, PatchSource, turned
from rnade.exceptions import DataError
from rnade.families import GaussianMixture, LaplaceMixture
from rnade.nn import GaussianModule, RNADEModule
from rnade.reproduce.core.density import Density
from rnade.reproduce.core.experiment import Choice, Context
from rnade.reproduce.core.plans import targets
from rnade.reproduce.patches import figure3, models, table2
from rnade.reproduce.patches.flows import fit_flow
from rnade.reproduce.patches.models import ColumnSource
from rnade.reproduce.patches.remarks import (
    fit_orders,
    log_mass_in_range,
    out_of_range,
    sample_in_range,
)
from rnade.reproduce.patches.rows import OUR_ROWS, PAPER_ROWS, ROWS, settings_of
from rnade.reproduce.patches.table2 import model_of, scored_patches
from rnade.reproduce.patches.zoran_weiss import read_mixture
from rnade.serialisation import read_model, write_model


def made_sources():
    """Smooth random images in place of photographs."""
    rng = np.random.default_rng(0)

    def image():
        noise = rng.normal(size=(40, 50)).cumsum(0).cumsum(1)
        scaled = (noise - noise.min()) / np.ptp(noise)
        return (255 * scaled).astype(np.uint8)

    return Bsds300(*(PatchSource([image() for _ in range(3)]) for _ in range(3)))


def small_module(family, seed=0, order=None):
    """An RNADE of 2 x 2 patches whose densities are far from their start."""
    generator = Generator().manual_seed(seed)
    module = RNADEModule(3, 5, family, order=order, generator=generator, weight_scale=0.6)
    with torch.no_grad():
        module.b.normal_(0, 0.5, generator=generator)
    return module


def test_densities_are_of_the_patches_themselves():
    """A standard normal density of decorrelated columns is the Gaussian that scipy fits."""
    x = made_sources().train.draw(4000, Generator().manual_seed(0))
    model = Density(GaussianModule(63), LinearPart.fit(x))
    X = x.double().numpy()
    gaussian = scipy.stats.multivariate_normal(X.mean(0), np.cov(X, rowvar=False, ddof=0))
    assert np.allclose(model.log_prob(x[:50]), gaussian.logpdf(X[:50]), atol=2e-2)
    drawn = model.sample(20_000, Generator().manual_seed(0)).double().numpy()
    assert np.allclose(np.cov(drawn, rowvar=False), np.cov(X, rowvar=False), atol=0.05 * X.var())


def test_turned_patches_in_every_minibatch():
    source = made_sources().train
    plain = source.draw(16, Generator().manual_seed(0))
    drawn = ColumnSource(source, Density(GaussianModule(63)), 8).draw(
        16, Generator().manual_seed(0)
    )
    for i in range(16):
        assert torch.equal(drawn[i], turned(plain[i], i % 8))


def test_zoran_and_weiss(tmp_path):
    """Their file, with the last pixel left out: marginals of Gaussians, as scipy has them."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(3, 4, 4))
    covs = roots @ roots.transpose(0, 2, 1) + np.eye(4)
    weights = np.array([0.2, 0.3, 0.5])
    structure = {"dim": 4.0, "nmodels": 3.0, "mixweights": weights[:, None]}
    structure["covs"] = np.moveaxis(covs, 0, -1)
    path = tmp_path / "model.mat"
    for means in (None, rng.normal(size=(4, 3))):
        if means is not None:
            structure["means"] = means
        scipy.io.savemat(path, {"GS": structure})
        mixture, facts = read_mixture(path)
        at = np.zeros((4, 3)) if means is None else means
        x = rng.normal(size=(20, 3))
        joint = [
            np.log(w) + scipy.stats.multivariate_normal(m[:3], S[:3, :3]).logpdf(x)
            for w, m, S in zip(weights, at.T, covs, strict=True)
        ]
        with torch.no_grad():
            ours = mixture.log_prob(torch.as_tensor(x)).numpy()
        assert np.allclose(ours, scipy.special.logsumexp(joint, axis=0))
        assert len(facts["sha256"]) == 64
    scipy.io.savemat(path, {"other": 1.0})
    with pytest.raises(DataError, match="fields mixweights and covs.*found \\['other'\\]"):
        read_mixture(path)


@pytest.mark.parametrize("family", [GaussianMixture(2), LaplaceMixture(2)])
def test_limiting_the_range_leaves_a_density(family):
    """Divided by its mass in range, the density of legal patches integrates to 1."""
    model = Density(small_module(family))
    grid = (torch.arange(-1, 1, 0.025) + 0.0125).double()
    x = torch.cartesian_prod(grid, grid, grid).float()
    p = model.log_prob(x)
    fixed, running = log_mass_in_range(model, x)
    cell = 0.025**3
    assert (p - fixed).exp().sum() * cell == pytest.approx(1, abs=5e-3)
    with_mean = torch.cat([x, torch.zeros(len(x), 1)], 1)
    legal = with_mean.amax(1) - with_mean.amin(1) <= 1
    assert (p - running).exp()[legal].sum() * cell == pytest.approx(1, abs=3e-2)
    assert (fixed < 0).all()
    assert (running <= fixed).all()


def test_samples_in_range():
    model = Density(small_module(GaussianMixture(2), order=[2, 0, 1]))
    free = model.sample(2000, Generator().manual_seed(0))
    assert (free.amax(1) - free.amin(1) > 1).double().mean() > 0.2
    limited = sample_in_range(model, 2000, Generator().manual_seed(0))
    assert (limited.amax(1) - limited.amin(1)).max() <= 1 + 1e-6
    assert limited.abs().max() <= 1
    # As many as numerical integration of the first pixel's density says lie below 0.
    (_, conditional), *_ = model.module.double().conditionals(free.double()[:1])
    below = conditional.cdf(torch.zeros(1)) - conditional.cdf(-torch.ones(1))
    whole = conditional.cdf(torch.ones(1)) - conditional.cdf(-torch.ones(1))
    share = (limited[:, 2] < 0).double().mean()
    assert share.item() == pytest.approx((below / whole).item(), abs=0.05)
    patches = torch.tensor([[0.3, -0.2, 0.1], [0.5, -0.6, 0.0], [0.4, 0.4, 0.1]])
    assert out_of_range(patches).tolist() == [False, True, True]  # the third by its last pixel


def test_orders_train_as_one_bank():
    settings = settings_of("orders", quick=True)
    fitted = fit_orders(settings, made_sources())
    orders = fitted.density.module.order
    assert orders[:2].tolist() == [list(range(63))] * 2
    assert orders[2].tolist() != orders[3].tolist()
    assert len(fitted.details["validation"]) == 4


def test_where_the_papers_rows_start():
    settings = {**ROWS["rnade-mog-20"].settings, "n_hidden": 200}
    module = models.make_module(settings, 63)
    models.start_biases(module, settings, torch.zeros(5, 63))
    assert module.W.std().item() == pytest.approx(0.126, rel=0.05)
    assert module.V.std().item() == pytest.approx(0.01, rel=0.05)
    fractions, means, scales = module.b[0, 7].split(20)
    assert not fractions.any()
    assert np.allclose(means.detach(), np.linspace(-0.2, 0.2, 20))
    assert np.allclose(scales.detach().exp(), 0.1)


def test_hidden_biases_may_start_apart_from_the_weights():
    settings = {**ROWS["rnade-mog-20"].settings, "n_hidden": 2000}
    settings["start"] = {**settings["start"], "c": 0.5, "c_mean": -3.0}
    module = models.make_module(settings, 63)
    assert module.c.mean().item() == pytest.approx(-3.0, abs=0.05)
    assert module.c.std().item() == pytest.approx(0.5, rel=0.05)
    assert module.W.std().item() == pytest.approx(0.126, rel=0.05)


def test_backends_of_a_gpu_are_left_out_elsewhere():
    settings = settings_of("deep-0", quick=True)
    assert settings["backend"] == "gpu-bf16"
    fitted = models.fit(settings, made_sources())
    assert fitted.density.module.backend == "auto"
    assert fitted.density.module.n_layers == 2
    assert fitted.details["history"][-1][0] == 3  # epochs


def test_labels_are_the_papers():
    assert [row.label for row in PAPER_ROWS.values()] == list(targets("table2")["figures"])
    recipe = PAPER_ROWS["rnade-mog-20"].settings["recipe"]
    assert recipe["epochs"] * recipe["batches_per_epoch"] == 200_000
    members = {m for row in OUR_ROWS.values() for m in row.settings.get("members", [])}
    assert members <= set(ROWS)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A folder for results, and made images in place of BSDS300."""
    monkeypatch.setattr(table2, "load_bsds300", lambda store, device: made_sources())
    monkeypatch.chdir(tmp_path)
    table2.load_patches.cache_clear()
    yield Context(None, torch.device("cpu"), tmp_path / "results" / "table2-quick")
    table2.load_patches.cache_clear()


def test_a_stored_model_is_not_trained_again(context, monkeypatch):
    patches = scored_patches(made_sources(), 200)
    trained = model_of("one-layer-1", patches, context, quick=True)
    monkeypatch.setattr(models, "fit", lambda *_: pytest.fail("it was trained again"))
    stored = model_of("one-layer-1", patches, context, quick=True)
    scores = [each.density.log_prob(patches.test) for each in (stored, trained)]
    assert torch.equal(*scores)
    assert stored.details == trained.details
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        model_of("one-layer-1", patches, context, quick=False)  # other settings


def test_files_of_before_are_read(context, monkeypatch):
    """They call the settings otherwise, and hold a map of the columns that changes nothing."""
    patches = scored_patches(made_sources(), 200)
    trained = model_of("rnade-mog-10", patches, context, quick=True)
    path = context.models_of("table2", quick=True) / "rnade-mog-10.safetensors"
    tensors, _ = read_model(path)
    tensors |= {"columns.mean": torch.zeros(63).double(), "columns.A": torch.eye(63).double()}
    older = {"patches": settings_of("rnade-mog-10", quick=True), "details": trained.details}
    write_model(path, tensors, older, overwrite=True)
    monkeypatch.setattr(models, "fit", lambda *_: pytest.fail("it was trained again"))
    stored = model_of("rnade-mog-10", patches, context, quick=True)
    scores = [each.density.log_prob(patches.test) for each in (stored, trained)]
    assert torch.equal(*scores)


QUICK = (
    "mog-100,rnade-mog-10,rnade-mol-10,one-layer-0,one-layer-1,one-layer-orders,zuko-maf,range-mog"
)


def test_the_quick_version_of_table2_and_the_figures(context, capsys, tmp_path, monkeypatch):
    """Rows, an ensemble as scipy averages it, a file of theirs; figures from the same models."""
    options = ("--quick", "--device", "cpu", "--quiet")
    structure = {"mixweights": np.ones(1), "covs": np.eye(64)[:, :, None]}
    scipy.io.savemat(tmp_path / "model.mat", {"GS": structure})
    theirs = ("--zoran-weiss", str(tmp_path / "model.mat"))
    assert main(["reproduce", "table2", *options, "--models", f"zoran-weiss,{QUICK}"]) == 0
    assert "MoG K=200 (Z&W) | n/a (161.90)" in capsys.readouterr().out
    assert main(["reproduce", "table2", *options, *theirs, "--models", "zoran-weiss"]) == 0
    folder = tmp_path / "results" / "table2-quick"
    lines = (folder / "records.jsonl").read_text().splitlines()
    results = {r["job"]["model"]: r["result"] for r in map(json.loads, lines)}
    assert set(results) == {*QUICK.split(","), "zoran-weiss"}
    patches = scored_patches(made_sources(), 2000)
    squares = patches.test.double().square().sum(1).mean().item()
    exact = -63 / 2 * np.log(2 * np.pi) - squares / 2
    assert results["zoran-weiss"]["test"]["mean"] == pytest.approx(exact, abs=1e-4)
    parts = [
        model_of(name, patches, context, quick=True).density.log_prob(patches.test).numpy()
        for name in ("one-layer-0", "one-layer-1")
    ]
    mean = (scipy.special.logsumexp(parts, axis=0) - np.log(2)).mean()
    assert results["one-layer-orders"]["test"]["mean"] == pytest.approx(mean, abs=1e-6)
    assert results["one-layer-0"]["train"]["by_image"] > 0
    for name in ("figure1", "figure3"):
        assert main(["reproduce", name, *options]) == 0
        drawn = tmp_path / "results" / f"{name}-quick"
        first = (drawn / f"{name}.svg").read_bytes()
        assert (drawn / f"{name}.png").stat().st_size > 10_000
        (drawn / f"{name}.svg").unlink()
        # Records are enough to draw it again, to the same file.
        monkeypatch.setattr(table2, "load_bsds300", lambda *_, **__: pytest.fail("data was read"))
        assert main(["reproduce", name, "--quick", "--quiet", "--report-only"]) == 0
        monkeypatch.setattr(table2, "load_bsds300", lambda store, device: made_sources())
        assert (drawn / f"{name}.svg").read_bytes() == first


def test_figure3_compares_conditionals():
    """Panels against the densities that they are of."""
    modules = {
        name: RNADEModule(63, 4, family, generator=Generator().manual_seed(0))
        for name, family in zip(
            figure3.MODELS, (GaussianMixture(2), LaplaceMixture(2)), strict=True
        )
    }
    x = made_sources().test.draw(300, Generator().manual_seed(0))
    found = figure3.compare(modules, x, 100)
    mog, mol = (modules[name] for name in figure3.MODELS)
    with torch.no_grad():
        total = (mog.log_prob(x[:100]) - mol.log_prob(x[:100])).mean()
    assert sum(found["difference"]) == pytest.approx(total.item(), abs=1e-3)
    assert found["parts"][-1]["mean"] == pytest.approx(total.item(), abs=1e-3)
    curve = found["curves"]["0"]
    mass = np.trapezoid(np.exp(curve["rnade-mol-10"]), curve["x"])
    with torch.no_grad():
        at = mol.conditional(0, x[:1, :0])
        inside = at.cdf(torch.ones(1)) - at.cdf(-torch.ones(1))
    assert mass == pytest.approx(inside.item(), abs=0.01)
    assert np.sum(found["histogram"]["density"]) / 100 == pytest.approx(1, abs=1e-6)


def test_tables_of_table2(context):
    """Bold is the highest; orders are compared by their means over runs."""

    def score(mean):
        return {"mean": mean, "standard_error": 0.03, "n_rows": 9, "by_image": 0.5}

    runs = {"raster": [score(150.0), score(151.0)], "random": [score(150.5), score(150.7)]}
    results = {
        "mog-100": {"test": score(144.0), "train": score(153.0), "n_parameters": 2_000_000},
        "rnade-mog-10": {"test": score(151.0), "train": score(160.0), "fit_seconds": 10.5},
        "orders": runs,
    }
    records = {}
    for name, result in results.items():
        (job,) = table2.EXPERIMENT.plan(Choice(models=(name,)))[0]
        records[job.identity] = {"job": job.key, "result": result}
    paper, _, orders, limits = table2.EXPERIMENT.tables(Choice(), records)
    assert paper.cell("RNADE-MoG K=10", "test").bold
    assert paper.cell("MoG K=100", "test").difference == pytest.approx(-0.7)
    assert paper.cell("MoG K=100", "million parameters").value == 2
    assert orders.cell("random less raster", "test").value == pytest.approx(0.1)
    error = np.sqrt(0.5 / 2 + 0.02 / 2)
    assert orders.cell("random less raster", "test").standard_error == pytest.approx(error)
    assert not any(limits.cells.values())


def test_a_flow_of_another_library_is_scored_in_the_units_of_the_patches():
    patches = scored_patches(made_sources(), 300)
    found = fit_flow(settings_of("zuko-maf", quick=True), patches.sources)
    assert found is not None
    density = found.density
    assert found.details["n_updates"] > 0
    assert found.details["skipped"] == 0
    x, linear = patches.test, density.linear
    columns = ((x.double() - linear.mean) @ linear.A.T).float()
    with torch.no_grad():
        expected = density.module.flow().log_prob(columns) + torch.linalg.slogdet(linear.A)[1]
    scores = density.log_prob(x)
    torch.testing.assert_close(scores, expected.double(), rtol=0, atol=1e-2)
    # It has learned: trained patches are far likelier than under white noise of their deviation.
    noise = scipy.stats.norm(0, x.std()).logpdf(x).sum(1).mean()
    assert density.log_prob(patches.train).mean() > noise + 10


def test_flows_are_left_out_where_their_library_is_not_installed(monkeypatch):
    monkeypatch.setattr("rnade.reproduce.patches.flows.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"zuko is not installed.*rnade\[peers\]"):
        assert fit_flow(settings_of("zuko-maf", quick=True), made_sources()) is None
