"""Banks on a GPU: updates replayed from a CUDA graph agree with updates on the CPU."""

import gc

import pytest
import torch
from torch import Generator

from rnade.batch import Batch
from rnade.families import GaussianMixture, LaplaceMixture
from rnade.nn import RNADEModule
from rnade.training import PAPER, Bank, Member, Recipe, ShuffledRows
from tests.test_training import make_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

RECIPES = {
    "adam": Recipe(epochs=5, batches_per_epoch=8, batch_size=20, patience=None, averaging=0.9),
    "clipped": Recipe(epochs=5, batches_per_epoch=8, batch_size=20, clip_norm=0.1),
    "plain": PAPER.with_changes(epochs=5, batch_size=20, momentum=0.0, weight_decay=0.1),
    "momentum": PAPER.with_changes(epochs=5, batch_size=20, learning_rate=0.005),
}


def trained(device, recipe, dtype, share=1.0, **options):
    sets = [
        (
            ShuffledRows(make_rows(100 + 7 * i, seed=i).to(device, dtype), i),
            Batch(make_rows(40, seed=9 + i).to(device, dtype)),
        )
        for i in range(2)
    ]
    members = []
    for i in range(6):
        family = (GaussianMixture if i % 2 else LaplaceMixture)(3)
        module = RNADEModule(2, 5, family, generator=Generator().manual_seed(i))
        module = module.to(device, dtype)
        module.start_from(sets[0][0].x)
        rate = recipe.learning_rate / (1 + i)
        members.append(Member(module, recipe.with_changes(learning_rate=rate), *sets[i % 2]))
    bank = Bank(members, **options)
    assert bank.advance(share)
    return bank.results()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RECIPES)
def test_graphs_agree_with_the_cpu(name, dtype):
    close = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {}
    ours, theirs = (trained(device, RECIPES[name], dtype) for device in ("cuda", "cpu"))
    for one, other in zip(ours, theirs, strict=True):
        for p, q in zip(one.module.parameters(), other.module.parameters(), strict=True):
            torch.testing.assert_close(p.cpu(), q, **close)


def test_graphs_of_earlier_runs_may_be_collected_at_any_time():
    """One that is freed while another is captured spoils it."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(3):
            assert all(
                model.diverged is None for model in trained("cuda", RECIPES["adam"], torch.float32)
            )
    finally:
        gc.set_threshold(*thresholds)


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    recipe = RECIPES["momentum"]
    whole = trained("cuda", recipe, torch.float32)
    trained("cuda", recipe, torch.float32, share=0.5, checkpoint=tmp_path, checkpoint_every=0.0)
    resumed = trained("cuda", recipe, torch.float32, checkpoint=tmp_path)
    for one, other in zip(whole, resumed, strict=True):
        for p, q in zip(one.module.parameters(), other.module.parameters(), strict=True):
            assert torch.equal(p, q)
