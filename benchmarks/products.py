"""The matrix products of our CPU kernels and nothing else: how fast these could be at best.

The same products, threads, blocks of rows and order of dimensions, and V and its gradient of full
size in memory; only activations, epilogues and everything around are left out.
"""

from typing import Any

import numba
import numpy as np
from torch import Tensor

from benchmarks.providers import Provider, Shape
from rnade.backends.cpu import launch, products
from rnade.backends.cpu import threads as workers
from rnade.backends.cpu.calls import call, gemm
from rnade.backends.cpu.lanes import LANES
from rnade.backends.cpu.products import multiply
from rnade.backends.threads import kernel_threads


def products_alone(shape: Shape) -> Provider:
    """One product a dimension for a density, three for a step, on numbers that mean nothing."""
    D, H, P = shape.D, shape.H, 3 * shape.K
    wide = -(-P // LANES) * LANES
    random = np.random.default_rng(0)
    V = (random.normal(size=(D, H, P)) / H).astype(np.float32)
    padded = np.pad(V, ((0, 0), (0, 0), (0, wide - P)))
    dV, turned = np.zeros_like(V), np.zeros((D, P, H), np.float32)
    functions = (
        workers.gemm_address(V.dtype),
        products.narrow_address(V.dtype) if products.narrow_pays(P) else 0,
        products.turn_address(V.dtype),
    )
    most = min(max(launch.BLOCK_ELEMENTS // H // 16 * 16, 16), launch.MOST_BLOCK_ROWS)

    def matrices(rows: int) -> list[Any]:
        """Arrays h, z, dh and V_d transposed of a thread."""
        sizes = ((rows, H + LANES), (rows, wide), (rows, H + LANES), (P, H + LANES))
        return [random.normal(size=size).astype(np.float32) for size in sizes]

    threads = kernel_threads()
    own = [matrices(most) for _ in range(threads)]

    def density(x: Tensor) -> None:
        n = len(x) // threads
        workers.run(
            [lambda a=a: _one(functions, padded, *a[:2], n, most) for a in own],  # type: ignore[misc]
            threads,
        )

    def step(x: Tensor) -> None:
        B = len(x)
        cuts = [i * D // threads for i in range(threads + 1)]

        def task(i: int) -> workers.Task:
            out = turned if B >= 2 * most and functions[1] == 0 else dV
            block = min(most, B)
            return lambda: _three(functions, V, out, *own[i], cuts[i], cuts[i + 1], B, block)

        workers.run([task(i) for i in range(threads)], threads)

    return Provider(density, step)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _one(functions: Any, V: Any, h: Any, z: Any, n: Any, block: Any) -> None:
    """The product of a density for n rows."""
    D, H, P = V.shape
    one, width = np.float32(1), h.shape[1]
    for start in range(0, n, block):
        R = min(block, n - start)
        for d in range(D):
            V_at, ahead = (
                V.ctypes.data + d * H * P * 4,
                V.ctypes.data + min(d + 1, D - 1) * H * P * 4,
            )
            strides, sizes = (width, 1, P, P), (R, P, H)
            multiply(functions, h.ctypes.data, V_at, z.ctypes.data, strides, sizes, one, ahead)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _three(
    functions: Any,
    V: Any,
    dV: Any,
    h: Any,
    z: Any,
    dh: Any,
    V_turned: Any,
    low: Any,
    high: Any,
    B: Any,
    block: Any,
) -> None:
    """The products of a step on B rows for some dimensions; dV is (D, H, P) or (D, P, H)."""
    _, H, P = V.shape
    zero, one = np.float32(0), np.float32(1)
    width, stride, whole = h.shape[1], z.shape[1], dV.shape[1] == H
    h_at, z_at, dh_at, turned_at = (
        h.ctypes.data,
        z.ctypes.data,
        dh.ctypes.data,
        V_turned.ctypes.data,
    )
    for start in range(0, B, block):
        R, keep = min(block, B - start), zero if start == 0 else one
        for d in range(high - 1, low - 1, -1):
            V_at, out = V.ctypes.data + d * H * P * 4, dV.ctypes.data + d * H * P * 4
            ahead = V.ctypes.data + max(d - 1, low) * H * P * 4
            strides, sizes = (width, 1, P, stride), (R, P, H)
            multiply(functions, h_at, V_at, z_at, strides, sizes, zero, out)
            if whole:
                strides, sizes = (1, width, stride, P), (H, P, R)
                multiply(functions, h_at, z_at, out, strides, sizes, keep, ahead)
            else:
                gemm(functions[0], False, True, H, P, R, h_at, width, z_at, stride, keep, out, H)
            if functions[1] != 0:
                call(functions[2], (V_at, turned_at, H, P, width))
                strides, sizes = (stride, 1, width, width), (R, H, P)
                multiply(functions, z_at, turned_at, dh_at, strides, sizes, zero, ahead)
            else:
                gemm(functions[0], True, False, H, R, P, V_at, P, z_at, stride, zero, dh_at, width)
