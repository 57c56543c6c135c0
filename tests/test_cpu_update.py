"""The fused updates on the CPU, against plain torch."""

import pytest
import torch
from torch import Generator

from rnade.training.optim import Optimiser, cpu, plain
from rnade.training.optim.forms import Counts, Rule, Step, kernels_for

RULES = ["adam", "sgd", "momentum"]
SHAPES = [(3, 3, 700), (3, 5), (3, 1)]


def updated(kernels, name, averaged, dtype):
    """Three updates of three models, of which one is not usable in the last."""
    generator = Generator().manual_seed(0)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=dtype)

    p = [draw(shape) for shape in SHAPES]
    state = [[torch.zeros_like(t) for t in p] for _ in range({"sgd": 0, "adam": 2}.get(name, 1))]
    decay = torch.tensor([0.01, 0.5, 0.0], dtype=dtype)
    momentum = torch.tensor([0.9, 0.5, 0.1], dtype=dtype) if name == "momentum" else None
    means = [t.clone() for t in p] if averaged else []
    rule = Rule(name, p, [decay, None, decay], means, *state)._replace(momentum=momentum)
    moved = [*p, *rule.first, *rule.second]
    rate, scale = torch.tensor([[0.1, 0.2, 0.3], [0.5, 2.0, 1.0]], dtype=dtype)
    for number in (1, 2, 3):
        gradients = [
            draw(shape).transpose(0, -1).contiguous().transpose(0, -1) for shape in SHAPES
        ]
        usable = torch.tensor([True, number < 3, True])
        before = [t[1].clone() for t in moved]
        if number == 3:
            gradients[0][1, 2, 7] = torch.nan
        unbias = torch.tensor(Optimiser.unbias(number), dtype=dtype)
        forget = torch.tensor(0.3, dtype=dtype)
        kernels.update(rule, gradients, Step(rate, scale, usable, unbias, forget))
    for t, kept in zip(moved, before, strict=True):
        assert torch.equal(t[1], kept)
    return [*moved, *means]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_an_update_is_the_plain_one(rule, averaged, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "SMALL", 1)  # several threads where there are
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {}
    fused, expected = (updated(kernels, rule, averaged, dtype) for kernels in (cpu, plain))
    torch.testing.assert_close(fused, expected, **close)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_gradients_are_judged_as_by_plain_torch(clip_norm):
    def judged(kernels):
        counts = Counts.start(torch.zeros(5, 3000))
        counts.active[4] = False
        told = []
        for _ in range(2):
            generator = Generator().manual_seed(1)
            g = [torch.randn(s, generator=generator) for s in ((5, 3000), (5, 2, 2))]
            for t in g:
                t[0] *= 1e-6
            g[0][2, 2999] = torch.inf
            loss = torch.tensor([1.0, 2.0, 3.0, torch.nan, 5.0])
            scale, usable = kernels.judge(g, loss, counts, clip_norm)
            told += [torch.where(usable, scale, 0.0), usable]
        return [*told, *counts]

    got = judged(cpu)
    assert got[1].tolist() == [True, True, False, False, False]
    assert got[5].tolist() == [0, 0, 2, 2, 0]  # skipped
    torch.testing.assert_close(got, judged(plain))


def test_what_the_kernels_serve():
    assert kernels_for([torch.zeros(2, 3)]) is cpu
    assert kernels_for([torch.zeros(2, 3), torch.zeros(2).double()]) is plain
    assert kernels_for([torch.zeros(2, 3).half()]) is plain
    assert kernels_for([torch.zeros(3, 2).T]) is plain


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_one_model_is_updated_in_pieces(threads, monkeypatch):
    monkeypatch.setattr(cpu, "SMALL", 1)
    monkeypatch.setattr(cpu, "kernel_threads", lambda: threads)
    generator = Generator().manual_seed(0)

    def draw():  # the last has fewer numbers than there are threads
        shapes = [(1, 7, 301), (1, 10), (1, 1)]
        return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]

    p, g, v = draw(), draw(), draw()
    keep, rate, scale, decay = (torch.tensor([f], dtype=p[0].dtype) for f in (0.9, 0.1, 0.5, 0.2))
    right_v = [keep * w - rate * (scale * h + decay * q) for q, h, w in zip(p, g, v, strict=True)]
    right_p = [q + w for q, w in zip(p, right_v, strict=True)]
    rule = Rule("momentum", p, [decay] * 3, first=v, momentum=keep)
    usable = torch.tensor([True])
    cpu.update(rule, g, Step(rate, scale, usable, torch.ones(2), torch.tensor(0.0)))
    torch.testing.assert_close([*p, *v], [*right_p, *right_v])

    norm = torch.cat([h.flatten() for h in g]).norm()
    loss = torch.ones(1, dtype=p[0].dtype)
    factor, usable = cpu.judge(g, loss, Counts.start(p[0]), clip_norm=1.0)
    assert bool(usable)
    torch.testing.assert_close(factor[0], 1 / norm)
    g[0][0, 6, 300] = torch.nan
    assert not bool(cpu.judge(g, loss, Counts.start(p[0]), clip_norm=1.0)[1])
