"""Training: updates against torch's own, recipes, early stopping, survival of bad gradients."""

import contextlib
import math

import pytest
import scipy.stats
import torch
from torch import Generator

from rnade.batch import Batch
from rnade.exceptions import TrainingDivergedError
from rnade.families import GaussianMixture
from rnade.nn import RNADEModule
from rnade.training import (
    MODERN,
    PAPER,
    FreshRows,
    Recipe,
    ShuffledRows,
    make_recipe,
    sources,
    train,
)
from rnade.training.checkpoint import Checkpoint
from rnade.training.optim import Optimiser
from rnade.training.optim.muon import orthogonal
from rnade.training.scoring import mean_log_likelihoods, side_by_side


def make_rows(n=400, seed=0):
    """Rows with a strong, non-linear dependence."""
    generator = Generator().manual_seed(seed)
    a = torch.randn(n, generator=generator)
    b = a.square() - 1 + 0.2 * torch.randn(n, generator=generator)
    return torch.stack([a, b / b.std()], dim=1)


def make_model(rows, seed=0, n_models=1, **options):
    module = RNADEModule(
        rows.shape[1],
        12,
        GaussianMixture(3),
        n_models=n_models,
        generator=Generator().manual_seed(seed),
        **options,
    )
    module.start_from(rows)
    return module


QUICK = Recipe(epochs=15, batches_per_epoch=20, batch_size=50, patience=None)


def make_step(rates, update=1, dtype=torch.float64):
    """What an update at these rates is told besides the gradients."""
    rate = torch.tensor(rates, dtype=dtype)
    unbias = torch.tensor(Optimiser.unbias(update))
    return {
        "loss": torch.zeros_like(rate),
        "rate": rate,
        "unbias": unbias,
        "forget": torch.tensor(0.1),
    }


@pytest.mark.parametrize(
    "recipe",
    [QUICK, PAPER.with_changes(epochs=40), PAPER.with_changes(epochs=40, momentum=0.0)],
    ids=["adam", "paper", "plain"],
)
def test_training_finds_the_dependence(recipe):
    rows, held_out = make_rows(), make_rows(seed=1)
    module = make_model(rows)
    outcome = train(
        module, rows, recipe, generator=Generator().manual_seed(0), validation=held_out
    )
    assert outcome.best_score > outcome.history[0]["validation"] + 0.5
    with torch.no_grad():
        score = module.log_prob(held_out).mean().item()
    assert score == pytest.approx(outcome.best_score, abs=1e-5)
    assert outcome.best_score == max(row["validation"] for row in outcome.history)


def test_history_is_plain_rows():
    rows = make_rows()
    seen = []
    outcome = train(
        make_model(rows),
        rows,
        QUICK.with_changes(epochs=3),
        generator=Generator().manual_seed(0),
        validation=rows[:50],
        on_epoch=seen.append,
    )
    assert seen == outcome.history
    assert [row["epoch"] for row in seen] == [0, 1, 2, 3]
    assert all(
        list(row) == ["epoch", "rate", "train", "validation", "seconds", "skipped"] for row in seen
    )
    assert all(isinstance(v, int | float) for row in seen for v in row.values())


def test_same_seed_same_weights():
    rows = make_rows()
    results = []
    for _ in range(2):
        module = make_model(rows)
        train(module, rows, QUICK.with_changes(epochs=2), generator=Generator().manual_seed(3))
        results.append(module.W.detach().clone())
    assert torch.equal(*results)


def test_adam_agrees_with_torch():
    generator = Generator().manual_seed(0)
    ours = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    theirs = torch.nn.Parameter(ours[0].clone())
    optimiser = Optimiser("adam", [ours], [torch.tensor([0.1]).double()])
    oracle = torch.optim.AdamW([theirs], lr=0.05, betas=(0.9, 0.99), weight_decay=0.1)
    for update in range(1, 6):
        g = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
        optimiser.step([g], **make_step([0.05], update))
        theirs.grad = g[0].clone()
        oracle.step()
    torch.testing.assert_close(ours[0], theirs.detach(), rtol=1e-6, atol=1e-7)


def test_sgd_agrees_with_torch_and_momentum_starts_in_the_second_epoch():
    generator = Generator().manual_seed(0)
    ours = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    theirs = torch.nn.Parameter(ours[0].clone())
    decay, momentum = torch.tensor([0.2]).double(), torch.tensor([0.9]).double()
    optimiser = Optimiser("sgd", [ours], [decay], momentum=momentum)
    for epoch, momentum in ((1, 0.0), (2, 0.9)):
        optimiser.start_epoch(epoch)
        # Its own velocity starts at 0 in epoch 2, while ours holds the last plain step; so let
        # torch see that step too.
        oracle = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=0.2)
        if epoch == 2:
            oracle.state[theirs]["momentum_buffer"] = -optimiser.state()[0][0] / 0.1
        for _ in range(3):
            g = torch.randn(1, 4, generator=generator, dtype=torch.float64)
            optimiser.step([g], **make_step([0.1]))
            theirs.grad = g[0].clone()
            oracle.step()
        torch.testing.assert_close(ours[0], theirs.detach(), rtol=1e-6, atol=1e-8)


def test_iterations_keep_singular_vectors_and_bring_all_singular_values_near_one():
    x = torch.randn(3, 2, 24, 24, generator=Generator().manual_seed(0), dtype=torch.float64)
    left, values, right = torch.linalg.svd(1e-3 * x)
    found = left.mT @ orthogonal(1e-3 * x) @ right.mT
    lengths = found.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found, torch.diag_embed(lengths), rtol=0, atol=1e-9)
    wanted = values > 1e-2 * values.amax(-1, keepdim=True)
    assert wanted.double().mean() > 0.9
    assert 0.6 < lengths[wanted].min() <= lengths[wanted].max() < 1.3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has it since 2.9")
def test_muon_agrees_with_torch_on_each_matrix():
    generator = Generator().manual_seed(0)
    ours = torch.randn(2, 3, 16, 16, generator=generator)
    theirs = [torch.nn.Parameter(U.clone()) for U in ours.flatten(0, 1)]
    start, decay = ours.clone(), torch.full((2,), 0.1)
    optimiser = Optimiser("muon", [ours], [decay], between_layers=[True])
    oracle = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        g = torch.randn(2, 3, 16, 16, generator=generator)
        optimiser.step([g], **make_step([0.02, 0.02], dtype=torch.float32))
        for p, gradient in zip(theirs, g.flatten(0, 1), strict=True):
            p.grad = gradient.clone()
        oracle.step()
    moved, wanted = ours - start, torch.stack(list(theirs)).view_as(ours).detach() - start
    # Torch's products are in bfloat16.
    assert torch.linalg.vector_norm(moved - wanted) < 0.02 * torch.linalg.vector_norm(wanted)


def test_muon_is_adam_but_for_the_matrices_between_layers():
    rows = make_rows()
    found = {}
    for name in ("adam", "muon"):
        module = make_model(rows, n_layers=3)
        recipe = Recipe(optimiser=name, epochs=1, batches_per_epoch=1)
        train(module, rows, recipe, generator=Generator().manual_seed(0))
        found[name] = dict(module.named_parameters())
    for name, value in found["adam"].items():
        assert torch.equal(value, found["muon"][name]) == (name != "U"), name


MAKE_OPTIMISER = {
    "muon": lambda p: Optimiser("muon", p, [None], between_layers=[True]),
    "adam": lambda p: Optimiser("adam", p, [None]),
    "sgd": lambda p: Optimiser("sgd", p, [None]),
    "momentum": lambda p: Optimiser("sgd", p, [None], momentum=torch.full((2,), 0.9).double()),
}


@pytest.mark.parametrize("make", MAKE_OPTIMISER.values(), ids=MAKE_OPTIMISER)
def test_a_bad_member_is_left_alone_and_the_others_never_notice(make):
    def after(third_gradient):
        p = torch.ones(2, 1, 3, 3, dtype=torch.float64)
        optimiser = make([p])
        optimiser.start_epoch(2)
        places = []
        for first in (1.0, 1.0, third_gradient):
            g = torch.tensor([[first] * 3, [1.0, -2.0, 0.5]], dtype=torch.float64)
            g = g.view(2, 1, 3, 1).expand_as(p)
            optimiser.step([g], **make_step([0.1, 0.1], len(places) + 1))
            places.append(p.clone())
        assert all(t.isfinite().all() for t in optimiser.state())
        return places

    bad, good = after(math.nan), after(1.0)
    assert torch.equal(bad[2][0], bad[1][0])  # though it had a velocity by then
    assert not torch.equal(good[2][0], good[1][0])
    assert torch.equal(bad[2][1], good[2][1])


def test_rates_fall_to_zero_and_rise_first():
    assert PAPER.share_at(0, 100) == pytest.approx(1)
    assert PAPER.share_at(50, 100) == pytest.approx(0.5)
    assert PAPER.share_at(99, 100) == pytest.approx(0.01)
    modern = Recipe(warmup=0.1)
    rates = [modern.share_at(i, 100) for i in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[0] == pytest.approx(0.1)
    assert rates[99] < 0.001


def test_decay_touches_w_alone():
    rows = make_rows()
    results = {}
    for decay in (0.0, 2.0):
        module = make_model(rows)
        recipe = PAPER.with_changes(epochs=1, weight_decay=decay, learning_rate=0.001)
        recipe = recipe.with_changes(batches_per_epoch=1)
        train(module, rows, recipe, generator=Generator().manual_seed(0))
        results[decay] = dict(module.named_parameters())
    plain, decayed = results[0.0], results[2.0]
    start = make_model(rows).W
    torch.testing.assert_close(decayed["W"], plain["W"] - 0.001 * 2.0 * start)
    for name in ("c", "rho", "V", "b"):
        torch.testing.assert_close(decayed[name], plain[name])


def test_patience_stops_early():
    rows = make_rows(60)
    recipe = QUICK.with_changes(epochs=200, learning_rate=0.02, patience=5)
    outcome = train(
        make_model(rows),
        rows,
        recipe,
        generator=Generator().manual_seed(0),
        validation=make_rows(40, seed=9),
    )
    last = outcome.history[-1]["epoch"]
    assert last < 200
    assert last == outcome.best_epoch + 5


def test_target_stops_at_the_first_epoch_that_reaches_it():
    rows = make_rows()
    free = train(
        make_model(rows), rows, QUICK, generator=Generator().manual_seed(0), target=math.inf
    )
    target = free.history[4]["train"]
    outcome = train(
        make_model(rows), rows, QUICK, generator=Generator().manual_seed(0), target=target
    )
    reached = [row["epoch"] for row in free.history if row["train"] >= target]
    assert outcome.history[-1]["epoch"] == reached[0]


def test_weights_of_rows_act_like_repetition():
    """Scores weigh rows; a model fitted to one group of two follows the weights."""
    rows = torch.cat([make_rows(200) - 3, make_rows(200, seed=2) + 3])
    weights = torch.cat([torch.full((200,), 1e-6), torch.ones(200)])
    module = make_model(rows)
    train(module, rows, QUICK, generator=Generator().manual_seed(0), weights=weights)
    mean = module.sample(2000, Generator().manual_seed(0)).mean(0)
    assert (mean > 2).all()


def test_noise_widens_what_is_learned():
    rows = torch.randint(-1, 2, (400, 2), generator=Generator().manual_seed(0)).float()
    sharp, wide = make_model(rows), make_model(rows)
    generator = Generator().manual_seed(0)
    train(sharp, rows, QUICK, generator=generator)
    train(wide, rows, QUICK, generator=generator, noise_width=torch.ones(2))
    with torch.no_grad():
        assert wide.log_prob(rows).mean() < sharp.log_prob(rows).mean()
        between = rows + 0.4
        assert wide.log_prob(between).mean() > sharp.log_prob(between).mean()


def test_an_update_with_a_non_finite_gradient_is_skipped_and_counted():
    rows = make_rows(100)
    rows[3, 1] = math.nan  # this row poisons every minibatch that holds it
    module = make_model(make_rows(100))
    recipe = QUICK.with_changes(batch_size=5, epochs=2, averaging=0.0)
    outcome = train(
        module, rows, recipe, generator=Generator().manual_seed(0), validation=make_rows(50)
    )
    assert outcome.history[-1]["skipped"] == 2  # 40 updates see each of the 100 rows twice
    assert all(torch.isfinite(p).all() for p in module.parameters())
    assert outcome.best_epoch > 0


def test_hopeless_training_ends_with_an_error_and_the_best_weights():
    rows = torch.full((50, 2), math.nan)
    module = make_model(make_rows(50))
    before = [p.detach().clone() for p in module.parameters()]
    with pytest.raises(
        TrainingDivergedError,
        match=r"diverged in epoch 4 at learning rate .* 20 updates in a row.* lower learning_rate",
    ):
        train(module, rows, QUICK, generator=Generator().manual_seed(0), validation=make_rows(50))
    for p, q in zip(module.parameters(), before, strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("rate", [1e3, 1e8])
@pytest.mark.parametrize(
    "base",
    [QUICK, PAPER.with_changes(epochs=15), PAPER.with_changes(epochs=15, momentum=0.0)],
    ids=["adam", "paper", "plain"],
)
def test_absurd_rates_never_leave_nan(base, rate):
    rows = make_rows(100)
    module = make_model(rows)
    with contextlib.suppress(TrainingDivergedError):
        train(
            module,
            rows,
            base.with_changes(learning_rate=rate),
            generator=Generator().manual_seed(0),
            validation=make_rows(50, seed=2),
        )
    with torch.no_grad():
        assert torch.isfinite(module.log_prob(rows)).all()


def test_a_bank_trains_each_member_as_if_alone():
    rows = make_rows()
    recipe = QUICK.with_changes(epochs=8, patience=2, learning_rate=0.03)
    bank = make_model(rows, n_models=2)
    starts = {name: p.detach().clone() for name, p in bank.named_parameters()}
    train(bank, rows, recipe, generator=Generator().manual_seed(5), validation=rows[:80])
    for m in range(2):
        alone = make_model(rows)
        with torch.no_grad():
            for name, p in alone.named_parameters():
                p.copy_(starts[name][m : m + 1])
        train(alone, rows, recipe, generator=Generator().manual_seed(5), validation=rows[:80])
        for name, p in alone.named_parameters():
            torch.testing.assert_close(dict(bank.named_parameters())[name][m], p[0])


def test_recipes_by_name():
    assert make_recipe("paper", epochs=None) == PAPER
    assert make_recipe("modern", epochs=7).epochs == 7
    assert MODERN.optimiser == "adam"
    with pytest.raises(ValueError, match="Unknown recipe 'papr'.*Did you mean 'paper'"):
        make_recipe("papr")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("learning_rate", 0.0, "learning_rate must be a number > 0; got 0.0"),
        ("learning_rate", -1.0, "learning_rate must be a number > 0; got -1.0"),
        ("learning_rate", math.nan, "learning_rate must be a number > 0; got nan"),
        ("batch_size", 0, "batch_size must be a whole number >= 1; got 0"),
        ("epochs", -3, "epochs must be a whole number >= 1; got -3"),
        ("weight_decay", -0.1, "weight_decay must be a number >= 0; got -0.1"),
        ("momentum", 1.5, "momentum must be a number >= 0 and <= 1; got 1.5"),
        ("patience", 0, "patience must be a whole number >= 1; got 0"),
        ("clip_norm", 0.0, "clip_norm must be a number > 0; got 0.0"),
    ],
)
def test_bad_settings_are_told_what_is_wrong(setting, value, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{setting: value})


class Normals:
    """A source of independent normal rows with the scale of each column."""

    device = torch.device("cpu")

    def __init__(self, scale):
        self.scale = torch.tensor(scale)

    def draw(self, n, generator):
        return torch.randn(n, len(self.scale), generator=generator) * self.scale


@pytest.mark.parametrize("ahead", [1, 700])
def test_fresh_rows_go_on_where_they_were(ahead, monkeypatch):
    """All minibatches differ; a source put back to an earlier state draws what came after it."""
    monkeypatch.setitem(sources.DRAWN_AHEAD, "cpu", ahead)

    def make():
        return FreshRows(Normals([1.0, 2.0]), Generator().manual_seed(3), n_known=5)

    source = make()
    first, *rest = source.draw(4, 50)
    assert first.shape == (4, 50, 2)
    assert rest == [None, None, None]
    kept = {name: t.clone() for name, t in source.state().items()}
    later = torch.cat([source.draw(3, 50)[0] for _ in range(6)])
    drawn = torch.cat([first, later]).flatten(0, 1)
    assert len(torch.unique(drawn, dim=0)) == len(drawn)
    again = make()
    assert torch.equal(again.known().x, source.known().x)
    again.restore(kept)
    assert torch.equal(torch.cat([again.draw(3, 50)[0] for _ in range(6)]), later)


def test_training_on_fresh_rows():
    """Rows never seen before lead to the density they come from; a checkpoint changes nothing."""
    scale = [0.5, 2.0]
    entropy = sum(scipy.stats.norm(scale=s).entropy() for s in scale)
    known = Normals(scale).draw(2000, Generator().manual_seed(1))
    module = make_model(known)
    source = FreshRows(Normals(scale), Generator().manual_seed(0), n_known=20_000)
    outcome = train(module, source, QUICK, validation=known)
    assert outcome.train_at_best == pytest.approx(-entropy, abs=0.05)
    with pytest.raises(TypeError, match="needs a generator"):
        train(module, known, QUICK)


def test_fresh_rows_survive_a_kill(tmp_path, monkeypatch):
    monkeypatch.setitem(Checkpoint.__init__.__kwdefaults__, "every", 0.0)
    known = Normals([0.5, 2.0]).draw(500, Generator().manual_seed(1))

    class Killed(Exception):
        pass

    def kill(row):
        if row["epoch"] == 9:
            raise Killed

    def trained(checkpoint=None, on_epoch=None):
        module = make_model(known)
        source = FreshRows(Normals([0.5, 2.0]), Generator().manual_seed(0), n_known=100)
        train(module, source, QUICK, checkpoint=checkpoint, on_epoch=on_epoch)
        return module

    with pytest.raises(Killed):
        trained(tmp_path / "half", kill)
    for a, b in zip(trained().parameters(), trained(tmp_path / "half").parameters(), strict=True):
        assert torch.equal(a, b)


# ------------------------------------------------------------------------ weights of rows


def repeated(rows, weights):
    """Rows as often as their whole weights say."""
    return rows.repeat_interleave(weights.long(), 0)


def whole_weights(n, seed):
    return torch.randint(1, 5, (n,), generator=Generator().manual_seed(seed)).double()


def test_scores_of_weighted_rows_are_those_of_repeated_rows():
    """For two sets of different lengths at once."""
    sets = [make_rows(30).double(), make_rows(45, seed=1).double()]
    weights = [whole_weights(len(x), seed) for seed, x in enumerate(sets)]
    bank = make_model(sets[0].float(), n_models=2).double()
    of_model = torch.tensor([1, 0])
    weighted = side_by_side([Batch(x, w) for x, w in zip(sets, weights, strict=True)])
    scores = mean_log_likelihoods(bank, weighted, of_model)
    for m, (x, w) in enumerate(zip(sets[::-1], weights[::-1], strict=True)):
        with torch.no_grad():
            expected = bank[m].log_prob(repeated(x, w)).mean()
        torch.testing.assert_close(scores[m], expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("target", [None, math.inf])
@pytest.mark.parametrize("recipe", [QUICK, PAPER], ids=["adam", "paper"])
def test_training_on_weighted_rows_is_training_on_repeated_rows(recipe, target):
    """In minibatches of all rows; with held-out rows that have weights too."""
    x, held_out = make_rows(60).double(), make_rows(40, seed=1).double()
    w, v = whole_weights(60, 0), whole_weights(40, 1)
    recipe = recipe.with_changes(epochs=6, batch_size=1000, batches_per_epoch=3)

    def trained(rows, left, **weights):
        module = make_model(x.float()).double()
        generator = Generator().manual_seed(0)
        told = train(
            module, rows, recipe, generator=generator, validation=left, target=target, **weights
        )
        return module, told

    ours, told = trained(x, held_out, weights=w, validation_weights=v)
    theirs, expected = trained(repeated(x, w), repeated(held_out, v))
    assert told.best_epoch == expected.best_epoch > 0
    for name in ("best_score", "train_at_best"):
        assert getattr(told, name) == pytest.approx(getattr(expected, name), abs=1e-9)
    for row, other in zip(told.history, expected.history, strict=True):
        for name in ("train", "validation"):
            assert row[name] == pytest.approx(other[name], abs=1e-9)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-8, atol=1e-9)


# ------------------------------------------------------------------------ sources


def test_sources_draw_what_is_known_of_each_row():
    """Weights are 1 on average and stay with their rows, as do the cells that were seen."""
    n = 12
    x = torch.arange(n).double()[:, None].repeat(1, 3)
    w, seen = torch.arange(1.0, n + 1).double(), x.long() % torch.tensor([2, 3, 4]) == 0
    batch = ShuffledRows(x, 0, weights=w, seen=seen).draw(2, n)
    assert batch.order is None
    for i in range(2):
        places = batch.x[i, :, 0].long()
        assert sorted(places.tolist()) == list(range(n))
        torch.testing.assert_close(batch.weights[i], w[places] / w.mean())
        assert torch.equal(batch.seen[i], seen[places])


def test_sources_that_know_less_are_filled_in():
    full = ShuffledRows(torch.zeros(5, 2), 0, weights=torch.ones(5), seen=torch.zeros(5, 2) > 0)
    both = sources.draw_all([full, ShuffledRows(torch.ones(6, 2), 0)], 3, 2)
    assert both.x.shape == (2, 3, 2, 2)
    assert (both.weights == 1).all()
    assert not both.seen[0].any()
    assert both.seen[1].all()
    alone = sources.draw_all([ShuffledRows(torch.ones(6, 2), 0)], 3, 2)
    assert alone.weights is None
    assert alone.seen is None


def test_a_fork_draws_the_same_and_leaves_its_source_alone():
    for source in (
        ShuffledRows(make_rows(10), 4, noise_width=torch.ones(2)),
        FreshRows(Normals([1.0, 2.0]), Generator().manual_seed(3), n_known=5),
    ):
        source.draw(2, 3)
        fork = source.fork()
        ahead = torch.cat([fork.draw(2, 3).x for _ in range(5)])
        assert torch.equal(ahead, torch.cat([source.draw(2, 3).x for _ in range(5)]))


def test_a_generator_that_is_given_moves_on():
    """Training twice with one generator sees other minibatches the second time."""
    rows, generator = make_rows(), Generator().manual_seed(0)
    first, second = make_model(rows), make_model(rows)
    for module in (first, second):
        train(module, rows, QUICK.with_changes(epochs=1), generator=generator)
    assert not torch.equal(first.W, second.W)
