"""Banks: members end as they would alone, whoever trains beside them; kills and odd members."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from torch import Generator

from rnade.backends.cpu import threads as cpu_threads
from rnade.batch import Batch
from rnade.exceptions import CheckpointError
from rnade.families import GaussianMixture
from rnade.nn import FVBNModule, NADEModule, RNADEModule
from rnade.training import (
    PAPER,
    Bank,
    FreshRows,
    Member,
    Recipe,
    ShuffledRows,
    beside,
    checkpoint,
    train,
)
from rnade.training import bank as bank_file
from rnade.training.interrupt import interruptible
from rnade.training.run import Run
from tests.test_training import Normals, make_rows

QUICK = Recipe(epochs=6, batches_per_epoch=8, batch_size=20, patience=None)


def make_member(rows, seed=0, n_hidden=6, n_components=2, recipe=QUICK, **options):
    module = RNADEModule(
        2,
        n_hidden,
        GaussianMixture(n_components),
        generator=Generator().manual_seed(seed),
        **options,
    )
    source, _ = rows
    module.start_from(source.x)
    return Member(module, recipe, *rows)


def make_sets(n=2):
    """Sets of different lengths, with validation rows of different lengths too."""
    return [
        (ShuffledRows(make_rows(100 + 7 * i, seed=i), i), Batch(make_rows(40 + i, seed=50 + i)))
        for i in range(n)
    ]


def weights_of(module):
    return [p.detach() for p in module.parameters()]


def finished(members, **options):
    bank = Bank(members, **options)
    assert bank.advance()
    return bank.results()


def assert_same(one, other):
    for p, q in zip(weights_of(one.module), weights_of(other.module), strict=True):
        assert torch.equal(p, q)
    assert one.best_score == other.best_score
    assert one.best_epoch == other.best_epoch


RECIPES = {
    "adam": QUICK,
    "averaged": QUICK.with_changes(averaging=0.9, weight_decay=0.1),
    "paper": PAPER.with_changes(epochs=6, batch_size=20),
    "plain": PAPER.with_changes(epochs=6, batch_size=20, momentum=0.0),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_members_end_as_they_would_alone(recipe):
    """Own rates, decays, seeds, orders, rows, shapes and stopping."""
    sets = make_sets()
    members = [
        make_member(sets[i % 2], seed=i, recipe=recipe.with_changes(**own), **shape)
        for i, (own, shape) in enumerate(
            [
                ({"learning_rate": 0.002}, {}),
                ({"learning_rate": 0.02, "weight_decay": 0.2}, {"order": "random"}),
                ({"learning_rate": 0.005}, {"n_components": 3}),
                ({"learning_rate": 0.01, "momentum": 0.5}, {"n_components": 3}),
                ({"patience": 1, "learning_rate": 0.05}, {}),
                ({}, {"n_hidden": 4}),
            ]
        )
    ]
    for member, result in zip(members, finished(members), strict=True):
        source = member.source
        alone = member.module[0]
        outcome = train(
            alone,
            source.x,
            member.recipe,
            generator=Generator().manual_seed(source.seed),
            validation=member.held_out.x,
        )
        for p, q in zip(weights_of(alone), weights_of(result.module), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        assert result.best_epoch == outcome.best_epoch
        assert result.best_score == pytest.approx(outcome.best_score, abs=1e-5)
        assert result.train_at_best == pytest.approx(outcome.train_at_best, abs=1e-5)
        assert len(result.history) == len(outcome.history)


def test_members_of_several_models_are_those_models():
    """Networks in one member train, stop and are kept as if each were a member of its own."""
    x = make_rows(100)
    rows, D = (ShuffledRows(x, 0), Batch(x[:30])), x.shape[1]
    recipes = [QUICK.with_changes(learning_rate=rate, patience=2) for rate in (0.05, 0.5)]
    generator = Generator().manual_seed(0)
    networks = FVBNModule(D, 4, GaussianMixture(2), generator=generator).to(x).networks
    together = Bank([Member(networks, recipe, *rows) for recipe in recipes])
    apart = Bank([Member(networks[d], recipe, *rows) for recipe in recipes for d in range(D)])
    for bank in (together, apart):
        assert bank.advance()
    wanted = [(m, d) for m in range(2) for d in range(D)]
    for one, other in zip(together.results(wanted), apart.results(), strict=True):
        assert_same(one, other)
    scores = torch.tensor(apart.best_scores()).view(2, D)
    torch.testing.assert_close(torch.tensor(together.scores_of_models()), scores)
    torch.testing.assert_close(torch.tensor(together.best_scores()), scores.sum(1))
    assert (scores[0] - scores[1]).abs().max() > 1e-3
    best = scores.argmax(0).tolist()
    assert together.best_of_each_model([0, 1]) == [(m, d) for d, m in enumerate(best)]
    picked = together.results([(1, D - 1), (0, 0)])
    assert [p.module.own.tolist() for p in picked] == [[D - 1], [0]]


def test_a_member_of_several_models_is_stopped_and_has_targets():
    rows = make_sets(1)[0]
    x = rows[0].x
    D = x.shape[1]
    generator = Generator().manual_seed(0)
    networks = FVBNModule(D, 4, GaussianMixture(2), generator=generator).to(x).networks
    bank = Bank([Member(networks, QUICK, *rows), Member(networks[0], QUICK, *rows)])
    assert bank.advance(0.4)
    bank.stop([0])
    assert bank.advance()
    lengths = [len(t.history) for t in bank.results([(0, 0), (0, D - 1), (1, 0)])]
    assert lengths[0] == lengths[1] < lengths[2]
    aimed = Bank([Member(networks, QUICK, ShuffledRows(x, 0), target=-1e9)])
    assert aimed.advance()
    assert [len(t.history) for t in aimed.results([(0, d) for d in range(D)])] == [2] * D


def test_a_memory_budget_splits_a_bank_and_changes_nothing():
    sets = make_sets()
    members = [make_member(sets[i % 2], seed=i) for i in range(5)]
    size = sum(p.numel() * p.element_size() for p in members[0].module.parameters())
    whole, split = Bank(members), Bank(members, memory=17 * size)
    assert len(whole.parts) == 1
    assert sorted(len(part.at) for part in split.parts) == [1, 2, 2]
    for bank in (whole, split):
        bank.advance()
    for one, other in zip(whole.results(), split.results(), strict=True):
        torch.testing.assert_close(weights_of(one.module), weights_of(other.module))


@pytest.mark.parametrize("kind", ["rate", "nan weights", "nan rows"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_mad_member_changes_no_other_by_a_bit(kind, name):
    """The sane ones of a bank with a mad member, against those of a bank with a sane one."""

    def run(mad):
        sets = make_sets(3)
        recipe = RECIPES[name].with_changes(epochs=12)
        members = [make_member(sets[0], seed=i, recipe=recipe) for i in range(5)]
        if mad and kind == "rate":
            members[2] = make_member(
                sets[0], seed=2, recipe=recipe.with_changes(learning_rate=1e3)
            )
        elif mad and kind == "nan weights":
            with torch.no_grad():
                members[2].module.W.fill_(math.nan)
        elif mad:
            sets[1][0].x.fill_(math.nan)
            members[2] = Member(members[2].module, recipe, *sets[1])
        else:
            members[2] = Member(members[2].module, recipe, *sets[1 if "rows" in kind else 0])
        return finished(members)

    mad, sane = run(mad=True), run(mad=False)
    for i in (0, 1, 3, 4):
        assert_same(mad[i], sane[i])
    if "nan" in kind:
        assert mad[2].diverged is not None
        assert sane[2].diverged is None
    if kind != "nan weights":
        assert all(torch.isfinite(p).all() for p in weights_of(mad[2].module))


def test_a_packed_bank_goes_on_as_before():
    """Members that stop early leave; the others are not disturbed."""
    x = make_rows(100)
    rows = ShuffledRows(x, 0), Batch(x)
    hopeless = QUICK.with_changes(patience=2, epochs=12, learning_rate=1e-30)
    lively = QUICK.with_changes(patience=2, epochs=12, learning_rate=0.003)
    members = [make_member(rows, seed=i, recipe=hopeless) for i in range(6)]
    members += [make_member(rows, seed=i, recipe=lively) for i in range(6, 9)]
    bank = Bank(members)
    bank.advance()
    run = bank.parts[0].run
    assert run.ids.tolist() == [6, 7, 8]
    assert run.live.module.n_models == 3
    results = bank.results()
    assert [len(r.history) - 1 for r in results[:6]] == [2] * 6
    assert all(len(r.history) - 1 > 2 for r in results[6:])
    together = finished([make_member(rows, seed=i, recipe=lively) for i in range(6, 9)])
    for one, other in zip(results[6:], together, strict=True):
        assert_same(one, other)


def test_stopping_members_by_hand():
    rows = make_sets(1)[0]
    bank = Bank([make_member(rows, seed=i) for i in range(4)])
    bank.advance(share=0.5)
    bank.stop([0, 3])
    bank.advance()
    assert [len(r.history) - 1 for r in bank.results()] == [3, 6, 6, 3]


def test_targets_stop_each_member_on_its_own():
    rows = ShuffledRows(make_rows(200), 0), None
    recipe = QUICK.with_changes(epochs=20, learning_rate=0.01)
    free = finished([make_member(rows, recipe=recipe)])[0]
    with torch.no_grad():
        start = make_member(rows).module.log_prob(rows[0].x).mean().item()
    halfway = (start + free.train_at_best) / 2
    members = [
        Member(make_member(rows).module, recipe, *rows, target=target)
        for target in (-math.inf, halfway, math.inf)
    ]
    lengths = [len(r.history) - 1 for r in finished(members)]
    assert lengths[0] == 1
    assert 1 < lengths[1] < 20
    assert lengths[2] == 20


def test_a_bank_that_runs_out_of_memory_is_halved(monkeypatch):
    rows = make_sets(1)[0]
    members = [make_member(rows, seed=i) for i in range(4)]
    expected = finished(members)
    compute = RNADEModule.weighted_log_likelihood

    def with_little_memory(self, x, *args, **options):
        if self.n_models > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(self, x, *args, **options)

    monkeypatch.setattr(RNADEModule, "weighted_log_likelihood", with_little_memory)
    bank = Bank(members)
    assert bank.advance()
    assert [len(part.at) for part in bank.parts] == [2, 2]
    for one, other in zip(bank.results(), expected, strict=True):
        torch.testing.assert_close(weights_of(one.module), weights_of(other.module))


def test_scoring_that_runs_out_of_memory_takes_fewer_rows(monkeypatch):
    rows = make_sets(1)[0]
    members = [make_member(rows)]
    expected = finished(members)
    compute, seen = RNADEModule.log_prob, []

    def with_little_memory(self, x, **options):
        seen.append(x.shape[1])
        if x.shape[1] > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(self, x, **options)

    monkeypatch.setattr(RNADEModule, "log_prob", with_little_memory)
    result = finished(members)[0]
    assert max(seen) > 10
    assert result.best_score == pytest.approx(expected[0].best_score, abs=1e-6)


def test_modules_are_stacked_and_picked():
    generator = Generator().manual_seed(0)
    alone = [RNADEModule(3, 4, order="random", generator=generator) for _ in range(3)]
    bank = RNADEModule.stack(alone)
    x = torch.randn(5, 3, generator=generator)
    with torch.no_grad():
        for i, module in enumerate(alone):
            torch.testing.assert_close(bank.log_prob(x)[i], module.log_prob(x))
            assert torch.equal(bank[i].log_prob(x), module.log_prob(x))
        assert bank[[2, 0]].n_models == 2
        bank[0].W.zero_()  # a copy
    assert bank.W[0].any()
    assert len(list(bank[0].parameters())) == 5
    with pytest.raises(IndexError, match="Expected members of a bank of 3; got 3"):
        bank[3]
    with pytest.raises(ValueError, match="Expected models of one kind and shape"):
        RNADEModule.stack([alone[0], NADEModule(3, 4)])


def test_fresh_rows_serve_a_bank():
    """Members of one source see the same rows, as if each had trained alone on them."""

    def source():
        return FreshRows(Normals([0.5, 2.0]), Generator().manual_seed(0), n_known=100)

    known, shared = make_rows(60), source()
    held_out = Batch(Normals([0.5, 2.0]).draw(50, Generator().manual_seed(1)))
    recipes = [QUICK.with_changes(learning_rate=rate) for rate in (0.01, 0.05)]
    starts = [make_member((ShuffledRows(known, 0), None), seed=i).module for i in range(2)]
    members = [
        Member(module, recipe, shared, held_out)
        for module, recipe in zip(starts, recipes, strict=True)
    ]
    for _ in range(2):  # the source is left where it is
        for member, result in zip(members, finished(members), strict=True):
            alone = member.module[0]
            outcome = train(alone, source(), member.recipe, validation=held_out.x)
            for p, q in zip(weights_of(alone), weights_of(result.module), strict=True):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
            assert result.train_at_best == pytest.approx(outcome.train_at_best, abs=1e-5)


def test_what_stands_in_a_missing_cell_does_not_matter():
    """Rows with holes are trained on and scored by what was observed of them."""
    generator = Generator().manual_seed(0)
    x, v = make_rows(120), make_rows(60, seed=1)
    seen, v_seen = (torch.rand(t.shape, generator=generator) < 0.7 for t in (x, v))

    def trained(filling):
        rows, held_out = (torch.where(s, t, filling) for t, s in ((x, seen), (v, v_seen)))
        source = ShuffledRows(rows, 0, seen=seen)
        module = make_member((ShuffledRows(x, 0), None)).module
        return finished([Member(module, QUICK, source, Batch(held_out, seen=v_seen))])[0]

    one, other = trained(math.nan), trained(7.0)
    assert_same(one, other)
    assert one.diverged is None
    assert one.best_score > one.history[0]["validation"] + 0.1
    with torch.no_grad():
        score = one.module.log_prob(v, seen=v_seen).mean().item()
    assert one.best_score == pytest.approx(score, abs=1e-5)


def test_members_of_one_source_may_hold_out_other_rows():
    (source, near), far = make_sets(1)[0], Batch(make_rows(40, seed=77) + 4)
    weighted = Batch(near.x, near.x[:, 0].square() + 0.1)
    members = [
        Member(make_member((source, None)).module, QUICK, source, held_out)
        for held_out in (near, far, weighted, Batch(near.x))
    ]
    for member, result in zip(members, finished(members), strict=True):
        x, w, *_ = member.held_out
        with torch.no_grad():
            scores = result.module.log_prob(x)
        assert result.best_score == pytest.approx(np.average(scores, weights=w), abs=1e-5)
    bank = Bank(members)
    assert len(bank.parts[0].run.sources) == 3  # the first and the last are one


# ------------------------------------------------------------------------ survival


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(tmp_path, name):
    def members():
        sets = make_sets()
        recipe = RECIPES[name].with_changes(epochs=10, patience=4)
        return [
            make_member(sets[i % 2], seed=i, recipe=recipe, n_components=2 + i // 4)
            for i in range(6)
        ]

    whole = finished(members())
    Bank(members(), checkpoint=tmp_path / "c", checkpoint_every=0.0).advance(share=0.4)
    bank = Bank(members(), checkpoint=tmp_path / "c", checkpoint_every=0.0)
    seen = []
    assert bank.advance(on_epoch=lambda bank: seen.append(bank.parts[0].run.epoch))
    assert seen[0] == 5  # not from the start
    for one, other in zip(bank.results(), whole, strict=True):
        assert_same(one, other)
        for ours, theirs in zip(one.history, other.history, strict=True):
            assert ours | {"seconds": 0} == theirs | {"seconds": 0}


def test_a_finished_checkpoint_ends_at_once(tmp_path):
    members = [make_member(make_sets(1)[0])]
    finished(members, checkpoint=tmp_path)
    before = os.listdir(tmp_path)
    seen = []
    bank = Bank(members, checkpoint=tmp_path)
    bank.advance(on_epoch=seen.append)
    assert seen == []
    assert len(bank.results()[0].history) == 7
    assert os.listdir(tmp_path) == before == ["bank-000.safetensors"]


def with_source(member, shift=0.0, seed=None, **options):
    """The same member on rows that are a little different."""
    old = member.source
    source = ShuffledRows(old.x + shift, old.seed if seed is None else seed, **options)
    return Member(member.module, member.recipe, source, member.held_out)


def with_recipe(member, **changes):
    return Member(
        member.module, member.recipe.with_changes(**changes), member.source, member.held_out
    )


def remade(member, **options):
    return make_member((member.source, member.held_out), **options)


FOREIGN = {
    "rows": lambda m: with_source(m, shift=1e-6),
    "row weights": lambda m: with_source(m, weights=torch.full((len(m.source.x),), 0.5)),
    "noise": lambda m: with_source(m, noise_width=torch.ones(2)),
    "rate": lambda m: with_recipe(m, learning_rate=0.1),
    "epochs": lambda m: with_recipe(m, epochs=99),
    "weights": lambda m: remade(m, seed=9),
    "order": lambda m: remade(m, order=[1, 0]),
    "activation": lambda m: remade(m, activation="sigmoid"),
    "seed": lambda m: with_source(m, seed=99),
    "held-out rows": lambda m: Member(
        m.module, m.recipe, m.source, Batch(m.held_out.x, torch.ones(40) + m.held_out.x[:, 0] ** 2)
    ),
}


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, change):
    member = make_member(make_sets(1)[0])
    finished([member], checkpoint=tmp_path)
    path = tmp_path / "bank-000.safetensors"
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="is of another run.*Delete it to start afresh"):
        finished([change(member)], checkpoint=tmp_path)
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_version_is_told_so(tmp_path, monkeypatch):
    member = make_member(make_sets(1)[0])
    monkeypatch.setattr(checkpoint, "LAYOUT", 1)
    finished([member], checkpoint=tmp_path)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="another version of rnade.*Delete it to start"):
        finished([member], checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda good: good[:-100], "cut short|damaged"),
        (lambda good: good[:20], "cut short"),
        (lambda good: b"", "empty"),
        (lambda good: good[:-9] + b"123456789", "checksum"),
        (lambda good: b"PK\x03\x04" + good, "torch.save"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path, content, message):
    member = make_member(make_sets(1)[0])
    finished([member], checkpoint=tmp_path)
    path = tmp_path / "bank-000.safetensors"
    bad = content(path.read_bytes())
    path.write_bytes(bad)
    with pytest.raises(CheckpointError, match=f"({message}).*Delete it to start afresh"):
        finished([member], checkpoint=tmp_path)
    assert path.read_bytes() == bad


KILLED = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from tests.test_bank import QUICK, Bank, make_member, make_sets
rows = make_sets()
recipe = QUICK.with_changes(epochs=40, batches_per_epoch=4)
members = [make_member(rows[i % 2], seed=i, recipe=recipe) for i in range(3)]
bank = Bank(members, checkpoint=sys.argv[1], checkpoint_every=0.0)
print("ready", flush=True)
bank.advance()
total = sum(p.double().sum().item() for r in bank.results() for p in r.module.parameters())
print(total.hex(), [r.best_score for r in bank.results()], flush=True)
"""


def test_killed_at_random_moments_it_ends_with_the_same_numbers(tmp_path):
    """A few kills; `benchmarks/kills.py` makes a hundred."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def start(folder):
        return subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder), root], stdout=subprocess.PIPE, text=True
        )

    undisturbed = start(tmp_path / "whole").communicate()[0].split("\n")[1]
    delays = iter([0.0, 0.03, 0.1, 0.2])
    while True:
        process = start(tmp_path / "killed")
        assert process.stdout.readline() == "ready\n"
        delay = next(delays, None)
        if delay is None:
            break
        time.sleep(delay)
        process.kill()
        process.communicate()
    assert process.communicate()[0].strip() == undisturbed


def test_ctrl_c_keeps_the_best_weights_so_far():
    rows = make_sets(1)[0]
    recipe = QUICK.with_changes(epochs=50)
    bank = Bank([make_member(rows, recipe=recipe)])

    def press(bank):
        if bank.parts[0].run.epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert not bank.advance(on_epoch=press)
    assert bank.interrupted
    result = bank.results()[0]
    assert len(result.history) == 4
    with torch.no_grad():
        score = result.module.log_prob(rows[1].x).mean().item()
    assert score == pytest.approx(result.best_score, abs=1e-5)


# ------------------------------------------------------------------ runs beside each other


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def make_kinds(**changes):
    """Members that form four runs: of one layer, of three, of other sizes, of minibatches."""
    sets, recipe = make_sets(2), QUICK.with_changes(**changes)
    return [
        make_member(sets[0], recipe=recipe),
        make_member(sets[1], seed=1, recipe=recipe, n_layers=3),
        make_member(sets[0], seed=2, recipe=recipe, n_hidden=9),
        make_member(sets[1], seed=3, recipe=recipe.with_changes(batch_size=30), n_components=3),
        make_member(sets[1], seed=4, recipe=recipe),
    ]


def test_runs_beside_each_other_end_as_one_after_the_other(two_threads, monkeypatch):
    recipe = {"averaging": 0.9, "patience": 2, "epochs": 20}
    bank, names, threads = Bank(make_kinds(**recipe)), set(), set()
    one_epoch = Run.one_epoch

    def noted(run, *given):
        names.add(threading.current_thread().name)
        return one_epoch(run, *given)

    monkeypatch.setattr(Run, "one_epoch", noted)
    epochs = []

    def on_epoch(bank):
        epochs.append(bank.epochs_done)
        threads.add(threading.current_thread())

    assert len(bank.parts) == 4
    assert bank.advance(0.3)
    assert bank.advance(on_epoch=on_epoch)
    assert threads == {threading.main_thread()}
    assert {name[-2:] for name in names} == {"_0", "_1"}
    assert epochs[-1] == bank.epochs_done
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(bank_file, "small_parts", lambda *_: [])
    for one, other in zip(bank.results(), finished(make_kinds(**recipe)), strict=True):
        assert_same(one, other)


def test_runs_train_alone_where_they_are_large_or_memory_is_short(two_threads, monkeypatch):
    parts = Bank(make_kinds()).parts
    enough = sum(part.bytes for part in parts)
    found = beside.small_parts(parts, enough)
    assert {id(part) for part in found} == {id(part) for part in parts}
    assert found[0].run.module.n_layers == 3  # the longest comes first
    assert beside.small_parts(parts, enough - 1) == []
    monkeypatch.setattr(beside, "FEW_PRODUCTS", found[0].run.n_torch_products)
    assert len(beside.small_parts(parts, enough)) == 3
    drawn = FreshRows(Normals([1.0, 1.0]), Generator().manual_seed(0))
    monkeypatch.setattr(parts[0].run, "sources", [drawn])
    assert parts[0] not in beside.small_parts(parts, enough)
    monkeypatch.setattr(cpu_threads, "_mkl", lambda: None)
    assert beside.small_parts(parts, enough) == []
    monkeypatch.undo()
    torch.set_num_threads(1)
    assert beside.small_parts(parts, enough) == []


def test_ctrl_c_ends_all_runs_that_train_beside_each_other(two_threads):
    bank, pressed = Bank(make_kinds(epochs=500)), []

    def press(bank):
        if not pressed:
            pressed.append(os.kill(os.getpid(), signal.SIGINT))

    assert not bank.advance(on_epoch=press)
    assert bank.interrupted
    assert bank.epochs_left > 1000
    assert all(math.isfinite(float(result.best_score)) for result in bank.results()[:1])


@pytest.mark.parametrize("n_threads", [1, 2])
def test_runs_whose_turn_never_came_are_those_of_the_start(n_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        bank = Bank(make_kinds(epochs=500))
        started = [[w.clone() for w in weights_of(member.module)] for member in bank.members]
        pressed = []

        def press(bank):
            if not pressed:
                pressed.append(os.kill(os.getpid(), signal.SIGINT))

        assert not bank.advance(on_epoch=press)
        results = bank.results()
    finally:
        torch.set_num_threads(before)
    assert len(results) == len(started)
    last = results[3]  # of the last run
    assert last.best_epoch == 0
    for p, q in zip(weights_of(last.module), started[3], strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("where", ["run", "caller"])
def test_an_error_ends_all_runs_that_train_beside_each_other(two_threads, monkeypatch, where):
    bank, one_epoch = Bank(make_kinds(epochs=500)), Run.one_epoch

    def fails(*_):
        raise OSError("no more")

    def sometimes(run, *given):
        return fails() if run.module.n_layers == 3 else one_epoch(run, *given)

    if where == "run":
        monkeypatch.setattr(Run, "one_epoch", sometimes)
    with pytest.raises(OSError, match="no more"):
        bank.advance(on_epoch=fails if where == "caller" else None)
    assert bank.epochs_left > 1000
    assert not [t for t in threading.enumerate() if "Executor" in t.name]  # none still trains


def test_ctrl_c_twice_ends_at_once_and_signals_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as pressed:
        assert not pressed()
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
