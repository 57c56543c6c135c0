"""The matrix products of our CPU kernels and nothing else: how fast these could be at best.

The same BLAS, threads, blocks of rows and order of dimensions, and V and its gradient of full size
in memory; only activations, epilogues and everything around are left out.
"""

from typing import Any

import numba
import numpy as np
from torch import Tensor

from benchmarks.providers import Provider, Shape
from rnade.backends import _cpu_launch, _cpu_threads
from rnade.backends._cpu_calls import gemm
from rnade.backends._cpu_lanes import LANES
from rnade.backends.threads import kernel_threads


def products_alone(shape: Shape) -> Provider:
    """One product a dimension for a density, three for a step, on numbers that mean nothing."""
    D, H, P = shape.D, shape.H, 3 * shape.K
    wide = -(-P // LANES) * LANES
    random = np.random.default_rng(0)
    V = (random.normal(size=(D, H, P)) / H).astype(np.float32)
    padded = np.pad(V, ((0, 0), (0, 0), (0, wide - P)))
    dV, turned = np.zeros_like(V), np.zeros((D, P, H), np.float32)
    address = _cpu_threads.gemm_address(V.dtype)
    most = min(max(_cpu_launch.BLOCK_ELEMENTS // H // 16 * 16, 16), _cpu_launch.MOST_BLOCK_ROWS)

    def matrices(rows: int) -> list[Any]:
        """Arrays h, z and dh of a thread."""
        sizes = (H + LANES, wide, H + LANES)
        return [random.normal(size=(rows, size)).astype(np.float32) for size in sizes]

    threads = kernel_threads()
    own = [matrices(most) for _ in range(threads)]

    def density(x: Tensor) -> None:
        n = len(x) // threads
        _cpu_threads.run(
            [lambda a=a: _one(address, padded, *a, n, most) for a in own],  # type: ignore[misc]
            threads,
        )

    def step(x: Tensor) -> None:
        B = len(x)
        cuts = [i * D // threads for i in range(threads + 1)]

        def task(i: int) -> _cpu_threads.Task:
            out = turned if B >= 2 * most else dV
            return lambda: _three(address, V, out, *own[i], cuts[i], cuts[i + 1], B, min(most, B))

        _cpu_threads.run([task(i) for i in range(threads)], threads)

    return Provider(density, step)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _one(address: Any, V: Any, h: Any, z: Any, dh: Any, n: Any, block: Any) -> None:
    """The product of a density for n rows."""
    D, H, P = V.shape
    one, width = np.float32(1), h.shape[1]
    for start in range(0, n, block):
        R = min(block, n - start)
        for d in range(D):
            V_at = V.ctypes.data + d * H * P * 4
            z_at, h_at = z.ctypes.data, h.ctypes.data
            gemm(address, False, False, P, R, H, V_at, P, h_at, width, one, z_at, P)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _three(
    address: Any,
    V: Any,
    dV: Any,
    h: Any,
    z: Any,
    dh: Any,
    low: Any,
    high: Any,
    B: Any,
    block: Any,
) -> None:
    """The products of a step on B rows for some dimensions; dV is (D, H, P) or (D, P, H)."""
    _, H, P = V.shape
    zero, one = np.float32(0), np.float32(1)
    width, stride, whole = h.shape[1], z.shape[1], dV.shape[1] == H
    h_at, z_at, dh_at = h.ctypes.data, z.ctypes.data, dh.ctypes.data
    for start in range(0, B, block):
        R, keep = min(block, B - start), zero if start == 0 else one
        for d in range(high - 1, low - 1, -1):
            V_at, out = V.ctypes.data + d * H * P * 4, dV.ctypes.data + d * H * P * 4
            gemm(address, False, False, P, R, H, V_at, P, h_at, width, zero, z_at, stride)
            if whole:
                gemm(address, False, True, P, H, R, z_at, stride, h_at, width, keep, out, P)
            else:
                gemm(address, False, True, H, P, R, h_at, width, z_at, stride, keep, out, H)
            gemm(address, True, False, H, R, P, V_at, P, z_at, stride, zero, dh_at, width)
