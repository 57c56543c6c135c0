"""Patches of images: where they come from and how they are prepared."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from rnade.data import DataStore
from rnade.data.patches import (
    PatchSource,
    fixed_labelled_patches,
    fixed_patches,
    load_bsds300,
    turned,
    whole_patches,
)


def images(seed, shapes=((12, 17), (17, 12), (9, 30))):
    """Images of which each pixel has a value that tells where it is."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size=shape, dtype=np.uint8) for shape in shapes]


def test_patches_are_pieces_of_the_images(seed):
    made = images(seed)
    windows = {
        bytes(np.ascontiguousarray(image[y : y + 8, x : x + 8]))
        for image in made
        for y in range(image.shape[0] - 7)
        for x in range(image.shape[1] - 7)
    }
    source = PatchSource(made)
    assert source.n_places == len(windows)
    drawn, _ = source._draw_raw(5000, Generator().manual_seed(seed))
    seen = [bytes(patch.numpy()) for patch in drawn]
    assert set(seen) == windows  # each place is drawn, and nothing else
    counts = np.unique(seen, return_counts=True)[1]
    # Every place as likely as any other: a chi-square far from its tail.
    expected = len(seen) / len(windows)
    chi = ((counts - expected) ** 2 / expected).sum()
    assert chi < len(windows) + 5 * np.sqrt(2 * len(windows))


def test_preparation_step_by_step(seed):
    source = PatchSource(images(seed))
    drawn = source.draw(7, Generator().manual_seed(seed))
    assert drawn.dtype == torch.float32
    assert drawn.shape == (7, 63)
    again = Generator().manual_seed(seed)
    raw = source._draw_raw(7, again)[0].numpy().astype(np.float64).reshape(7, 64)
    noise = torch.rand(7, 64, generator=again).numpy()
    pixels = (raw + noise) / 256
    expected = pixels - pixels.mean(axis=1)[:, None]
    assert np.allclose(drawn, expected[:, :63], atol=1e-6)


def test_many_patches_come_in_chunks(monkeypatch):
    monkeypatch.setattr("rnade.data.patches._CHUNK", 10)
    source = PatchSource(images(0))
    assert source.draw(25, Generator().manual_seed(0)).shape == (25, 63)
    assert source.draw(20, Generator().manual_seed(0)).shape == (20, 63)


def test_fixed_patches_are_fixed():
    source = PatchSource(images(0))
    one, same = (fixed_patches(source, 50) for _ in range(2))
    assert torch.equal(one, same)
    assert not torch.equal(one, fixed_patches(source, 50, seed=2))


def test_labels_tell_the_image(monkeypatch):
    monkeypatch.setattr("rnade.data.patches._CHUNK", 30)
    flat = [np.full((9 + i, 12), 50 * i, np.uint8) for i in range(4)]
    flat[2][:, ::2] = 7  # the only image that is not even
    source = PatchSource(flat)
    x, image = fixed_labelled_patches(source, 100)
    assert torch.equal(x, fixed_patches(source, 100))
    uneven = x.std(1) > 0.1
    assert torch.equal(uneven, image == 2)
    assert set(image.tolist()) == {0, 1, 2, 3}


def test_symmetries_of_the_square():
    """Turned patches are NumPy's; as maps of the 63 numbers they keep volume and all differ."""
    x = PatchSource(images(0)).draw(5, Generator().manual_seed(0)).double()
    pixels = whole_patches(x).numpy()
    assert np.allclose(pixels.sum((1, 2)), 0, atol=1e-6)
    by_numpy = {
        0: pixels,
        1: pixels[:, :, ::-1],
        2: pixels[:, ::-1],
        3: np.rot90(pixels, 2, axes=(1, 2)),
        4: pixels.transpose(0, 2, 1),
    }
    for g, expected in by_numpy.items():
        assert np.allclose(whole_patches(turned(x, g)), expected, atol=1e-9)
    maps = [turned(torch.eye(63, dtype=torch.float64), g).numpy() for g in range(8)]
    assert [abs(np.linalg.det(A)) for A in maps] == pytest.approx([1.0] * 8)
    assert len({A.tobytes() for A in maps}) == 8


@pytest.mark.parametrize(
    "image", [np.zeros((7, 20), np.uint8), np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9))]
)
def test_images_that_are_refused(image):
    with pytest.raises(ValueError, match="Expected grey uint8 images of at least 8 x 8 pixels"):
        PatchSource([image])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_patches_on_a_gpu():
    source = PatchSource(images(0), device="cuda")
    drawn = source.draw(100, Generator("cuda").manual_seed(0))
    assert drawn.is_cuda
    assert torch.equal(fixed_patches(source, 50).cpu(), fixed_patches(source.to("cpu"), 50))


@pytest.mark.data
def test_bsds300(data_folder):
    """Sizes, parts that share no image, and the spread of the pixels."""
    data = load_bsds300(DataStore(data_folder))
    parts = (data.train, data.validation, data.test)
    assert [part.n_images for part in parts] == [180, 20, 100]
    places = (481 - 7) * (321 - 7)
    assert [part.n_places for part in parts] == [n * places for n in (180, 20, 100)]
    pixels = [part._pixels for part in parts]
    assert [len(p) for p in pixels] == [n * 481 * 321 for n in (180, 20, 100)]
    first = {bytes(p.view(-1, 481 * 321)[i, :2000].numpy()) for p in pixels for i in range(20)}
    assert len(first) == 60
    x = data.test.draw(50_000, Generator().manual_seed(0))
    # The spread of patches cut out of the same images by other means.
    cut = []
    for path in sorted((data_folder / "bsds300" / "images" / "test").iterdir()):
        grey = np.asarray(Image.open(path).convert("L")) / 256
        places = np.lib.stride_tricks.sliding_window_view(grey, (8, 8))[::17, ::17]
        pixels = places.reshape(-1, 64)
        cut.append((pixels - pixels.mean(1, keepdims=True))[:, :63])
    assert float(x.std()) == pytest.approx(np.concatenate(cut).std(), rel=0.03)
    other = load_bsds300(DataStore(data_folder), seed=1)
    assert not torch.equal(other.validation._pixels, data.validation._pixels)
