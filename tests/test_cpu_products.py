import ctypes

import numba
import numpy as np
import pytest
from numba.core import config

from rnade.backends.cpu import products
from rnade.backends.cpu import threads as workers
from rnade.backends.cpu.products import multiply

# m, n, k: all ones; a tile and one less or more of each; several tiles, panels and depths; primes.
SIZES = [
    (1, 1, 1),
    (6, 64, 3),
    (7, 65, 2),
    (13, 31, 5),
    (25, 60, 130),
    (130, 47, 25),
    (2, 300, 257),
    (11, 13, 17),
]
DTYPES = [np.float32, np.float64]
BEYOND = 12345.0


@numba.njit
def run(functions, a, b, c, strides, sizes, keep):
    at = c.ctypes.data
    multiply(functions, a.ctypes.data, b.ctypes.data, at, strides, sizes, keep, at)


@pytest.mark.parametrize("way", ["blas", "narrow"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_follow_numpy(size, dtype, turned, keep, way):
    m, n, k = size
    random, kind = np.random.default_rng(0), np.dtype(dtype)
    # What lies beyond a row must be neither used nor changed.
    A = np.full((k, m + 2) if turned else (m, k + 2), np.nan, dtype)
    B = np.full((k, n + 3), np.nan, dtype)
    C = np.full((m, n + 5), BEYOND, dtype)
    a = random.normal(size=(m, k)).astype(dtype)
    if turned:
        A[:, :m] = a.T
    else:
        A[:, :k] = a
    B[:, :n], C[:, :n] = random.normal(size=(k, n)), random.normal(size=(m, n))
    expected = a.astype(float) @ B[:, :n].astype(float) + keep * C[:, :n].astype(float)
    narrow = products.narrow_address(kind) if way == "narrow" else 0
    strides = (1, m + 2, n + 3, n + 5) if turned else (k + 2, 1, n + 3, n + 5)
    run((workers.gemm_address(kind), narrow), A, B, C, strides, size, dtype(keep))
    scale = np.abs(a).astype(float) @ np.abs(B[:, :n]).astype(float) + 1
    assert (np.abs(C[:, :n] - expected) <= (k + 1) * np.finfo(dtype).eps * scale).all()
    assert (C[:, n:] == BEYOND).all()


def test_narrow_products_keep_nan_and_infinity():
    a, b = np.ones((2, 3), np.float32), np.ones((3, 5), np.float32)
    a[0, 1], b[2, 4] = np.inf, np.nan
    c = np.zeros((2, 5), np.float32)
    functions = (0, products.narrow_address(c.dtype))
    run(functions, a, b, c, (3, 1, 5, 5), (2, 5, 3), np.float32(0))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("features", "wide"), [("+avx2,-avx512f", False), ("", False), ("+avx2,+avx512f", True)]
)
def test_short_vectors_leave_the_products_to_blas(features, wide, monkeypatch):
    monkeypatch.setattr(config, "CPU_FEATURES", features)
    products.wide_vectors.cache_clear()
    found = [products.narrow_pays(n) for n in (1, 16, 17, 60)]
    products.wide_vectors.cache_clear()
    assert found == [False, False, wide, wide]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (16, 16), (50, 30), (17, 64), (3, 40), (40, 3)], ids=str
)
def test_turning_follows_numpy(shape, dtype):
    m, n = shape
    a = np.random.default_rng(0).normal(size=shape).astype(dtype)
    out = np.full((n + 1, m + 4), BEYOND, dtype)
    kind = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3
    turn = ctypes.CFUNCTYPE(None, *kind)(products.turn_address(np.dtype(dtype)))
    turn(a.ctypes.data, out.ctypes.data, m, n, m + 4)
    np.testing.assert_array_equal(out[:n, :m], a.T)
    assert (out[n:] == BEYOND).all()
    assert (out[:, m:] == BEYOND).all()
