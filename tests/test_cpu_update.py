"""The fused updates on the CPU, against plain torch."""

import pytest
import torch
from torch import Generator

from rnade.backends import cpu_update, updates
from rnade.training import ledger, optimisers
from rnade.training.ledger import Ledger
from rnade.training.optimisers import Adam, Sgd, Step

RULES = {
    "adam": lambda p, decays, means: Adam(p, decays, means),
    "sgd": lambda p, decays, means: Sgd(p, decays, averages=means, momentum=None),
    "momentum": lambda p, decays, means: Sgd(
        p, decays, averages=means, momentum=torch.tensor([0.9, 0.5, 0.1], dtype=p[0].dtype)
    ),
}
SHAPES = [(3, 3, 700), (3, 5), (3, 1)]


def updated(rule, averaged, dtype):
    """Three updates of three models, of which one is not usable in the last."""
    generator = Generator().manual_seed(0)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=dtype)

    p = [draw(shape) for shape in SHAPES]
    means = [t.clone() for t in p] if averaged else []
    decay = torch.tensor([0.01, 0.5, 0.0], dtype=dtype)
    optimiser = RULES[rule](p, [decay, None, decay], means)
    optimiser.start_epoch(2)
    rate, scale = torch.tensor([[0.1, 0.2, 0.3], [0.5, 2.0, 1.0]], dtype=dtype)
    for number in (1, 2, 3):
        gradients = [
            draw(shape).transpose(0, -1).contiguous().transpose(0, -1) for shape in SHAPES
        ]
        usable = torch.tensor([True, number < 3, True])
        before = [t[1].clone() for t in (*p, *optimiser.state())]
        if number == 3:
            gradients[0][1, 2, 7] = torch.nan
        unbias = torch.tensor(Adam.unbias(number), dtype=dtype)
        forget = torch.tensor(0.3, dtype=dtype)
        optimiser.step(gradients, Step(rate, scale, usable, unbias, forget))
    for t, kept in zip((*p, *optimiser.state()), before, strict=True):
        assert torch.equal(t[1], kept)
    return [*p, *optimiser.state(), *means]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_an_update_is_the_plain_one(rule, averaged, dtype, monkeypatch):
    monkeypatch.setattr(cpu_update, "SMALL", 1)  # several threads where there are
    counted, update = [], cpu_update.update
    monkeypatch.setattr(cpu_update, "update", lambda *a, **k: (counted.append(a), update(*a, **k)))
    fused = updated(rule, averaged, dtype)
    assert len(counted) == 3
    monkeypatch.setattr(optimisers, "fused_updates", lambda parameters: None)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {}
    torch.testing.assert_close(fused, updated(rule, averaged, dtype), **close)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_gradients_are_judged_as_by_plain_torch(clip_norm, monkeypatch):
    parameters = [torch.zeros(5, 3000), torch.zeros(5, 2, 2)]

    def judged():
        book = Ledger(parameters)
        book.active[4] = False
        told = []
        for _ in range(2):
            generator = Generator().manual_seed(1)
            g = [torch.randn(p.shape, generator=generator) for p in parameters]
            for t in g:
                t[0] *= 1e-6
            g[0][2, 2999] = torch.inf
            loss = torch.tensor([1.0, 2.0, 3.0, torch.nan, 5.0])
            scale, usable = book.judge(g, loss, clip_norm)
            told += [torch.where(usable, scale, 0.0), usable]
        return [*told, book.skipped, book.in_a_row, book.log_likelihood, book.counted]

    got = judged()
    assert got[1].tolist() == [True, True, False, False, False]
    monkeypatch.setattr(ledger, "fused_updates", lambda parameters: None)
    torch.testing.assert_close(got, judged())


def test_what_the_kernels_serve():
    assert updates.fused_updates([torch.zeros(2, 3)]) is cpu_update
    assert updates.fused_updates([torch.zeros(2, 3), torch.zeros(2).double()]) is None
    assert updates.fused_updates([torch.zeros(2, 3).half()]) is None
    assert updates.fused_updates([torch.zeros(3, 2).T]) is None


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_one_model_is_updated_in_pieces(threads, monkeypatch):
    monkeypatch.setattr(cpu_update, "SMALL", 1)
    monkeypatch.setattr(cpu_update, "kernel_threads", lambda: threads)
    generator = Generator().manual_seed(0)

    def draw():  # the last has fewer numbers than there are threads
        shapes = [(1, 7, 301), (1, 10), (1, 1)]
        return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]

    p, g, v = draw(), draw(), draw()
    keep, rate, scale, decay = (torch.tensor([f], dtype=p[0].dtype) for f in (0.9, 0.1, 0.5, 0.2))
    right_v = [keep * w - rate * (scale * h + decay * q) for q, h, w in zip(p, g, v, strict=True)]
    right_p = [q + w for q, w in zip(p, right_v, strict=True)]
    rule = updates.Rule("momentum", v, momentum=keep)
    own = {"rate": rate, "scale": scale, "usable": torch.tensor([True])}
    rest = {"unbias": torch.ones(2), "forget": torch.tensor(0.0)}
    cpu_update.update(p, g, rule, [decay] * 3, [], **own, **rest)
    torch.testing.assert_close([*p, *v], [*right_p, *right_v])

    norm = torch.cat([h.flatten() for h in g]).norm()
    factor, usable = Ledger(p).judge(g, torch.ones(1, dtype=p[0].dtype), clip_norm=1.0)
    assert bool(usable)
    torch.testing.assert_close(factor[0], 1 / norm)
    g[0][0, 6, 300] = torch.nan
    assert not bool(Ledger(p).judge(g, torch.ones(1, dtype=p[0].dtype), clip_norm=1.0)[1])
