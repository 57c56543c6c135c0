"""A matrix product of our own for the small products of the CPU kernels, where it beats BLAS.

BLAS copies its operands into a layout of its own first. That pays for large matrices; here a
product has 25 to 100 rows and its operands lie in cache already, so that the copies take as long
as a third of the product. `_multiply` has the arguments of the Fortran sgemm and stands in for it.

- Computed: C = op(A) op(B) + beta C, column-major, beta 0 or 1, alpha 1. Seen by rows, as our
  arrays are: C[j, :] is a sum over k of numbers op(B)[k, j] times vectors A[:, k].
- In registers: a tile of C, up to 6 rows by 4 vectors of 16, for the whole sum over k. A step of
  it loads 4 vectors and 6 numbers and does 24 multiplications, twice what loading takes.
- Copied: only an A that has to be transposed, 64 by 64 numbers at a time, into 16 KiB.
- Traffic: A is read once for each 6 rows of C, from the second-level cache.

It wants the 32 registers of AVX-512, and single precision. Elsewhere BLAS is the right choice, and
for products with less than half a vector of columns.
"""

from functools import cache
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir

from rnade.backends._cpu_calls import address_of, cgutils, intrinsic, types
from rnade.backends._cpu_lanes import LANES

VECTORS = 4  # of a tile at most
ROWS_4, ROWS_FEWER = 6, 8  # of a tile of 4 vectors and of fewer: what 32 registers hold
TURNED = VECTORS * LANES  # rows and columns of A that are transposed at a time

_BYTES = 4
_TURN = ord("T")
_word, _byte, _single = ir.IntType(64), ir.IntType(8), ir.FloatType()
_vector, _mask = ir.VectorType(_single, LANES), ir.VectorType(ir.IntType(1), LANES)


@cache
def available(dtype: np.dtype[Any]) -> bool:
    """Whether products of this precision can be made here."""
    features = llvmlite.binding.get_host_cpu_features()
    return dtype == np.float32 and bool(features.get("avx512f", False))


class _Code:
    """Instructions on vectors in memory, by address."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def place(self, base: Any, offset: Any) -> Any:
        """Address `offset` numbers after `base`."""
        return self.builder.add(base, self.builder.mul(offset, _word(_BYTES)))

    def _call(self, name: str, kind: Any, arguments: list[Any]) -> Any:
        function = ir.FunctionType(kind, [value.type for value in arguments])
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, function, name), arguments
        )

    def _pointer(self, address: Any) -> Any:
        return self.builder.inttoptr(address, _vector.as_pointer())

    def load(self, address: Any, mask: Any = None) -> Any:
        """16 numbers, zero where the mask is not set; those are not touched in memory."""
        if mask is None:
            return self.builder.load(self._pointer(address), align=_BYTES)
        zeros = ir.Constant(_vector, [0.0] * LANES)
        arguments = [self._pointer(address), ir.IntType(32)(_BYTES), mask, zeros]
        return self._call("llvm.masked.load.v16f32.p0", _vector, arguments)

    def store(self, value: Any, address: Any, mask: Any = None) -> None:
        if mask is None:
            self.builder.store(value, self._pointer(address), align=_BYTES)
            return
        arguments = [value, self._pointer(address), ir.IntType(32)(_BYTES), mask]
        self._call("llvm.masked.store.v16f32.p0", ir.VoidType(), arguments)

    def spread(self, address: Any) -> Any:
        """16 times the number at an address."""
        number = self.builder.load(self.builder.inttoptr(address, _single.as_pointer()))
        first = self.builder.insert_element(ir.Constant(_vector, ir.Undefined), number, ir.IntType(32)(0))
        return self.builder.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        )

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        return self._call("llvm.fma.v16f32", _vector, [x, y, z])

    def below(self, n: Any) -> Any:
        """Mask of the first n of 16, for n up to 16 or more; by bits, which registers keep."""
        n = self.builder.select(self.builder.icmp_signed("<", n, _word(LANES)), n, _word(LANES))
        bits = self.builder.sub(self.builder.shl(_word(1), n), _word(1))
        return self.builder.bitcast(self.builder.trunc(bits, ir.IntType(LANES)), _mask)


@intrinsic
def _tile(
    typing_context: Any,
    rows: Any,
    vectors: Any,
    last: Any,
    n: Any,
    a: Any,
    a_step: Any,
    b: Any,
    b_row: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    add: Any,
) -> Any:
    """C[i, :] = sum over k < n of b[i b_row + k b_step] a[k a_step + :], for one tile.

    a, b, c are addresses, steps are in numbers. Of the last vector `last` numbers count. With
    `add` the sum is added to C.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, vectors, last, add = *values[:3], values[-1]
        code = _Code(builder)
        mask, whole = code.below(last), code.below(_word(LANES))
        nothing = code.below(_word(0))
        added = [builder.select(add, kept, nothing) for kept in (whole, mask)]
        end = builder.append_basic_block("end")
        which = builder.add(builder.mul(vectors, _word(16)), rows)
        choice = builder.switch(which, end)
        for v in range(1, VECTORS + 1):
            for r in range(1, (ROWS_4 if v == VECTORS else ROWS_FEWER) + 1):
                block = builder.append_basic_block(f"tile_{r}_{v}")
                choice.add_case(_word(16 * v + r), block)
                builder.position_at_end(block)
                one_size(code, r, v, mask, added, values[3:-1])
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    def one_size(code: Any, R: int, N: int, mask: Any, added: Any, values: Any) -> None:
        builder = code.builder
        n, a, a_step, b, b_row, b_step, c, c_row = values
        masks = [None] * (N - 1) + [mask]
        a_bytes, b_bytes = (builder.mul(step, _word(_BYTES)) for step in (a_step, b_step))
        b_rows = [builder.mul(b_row, _word(_BYTES * r)) for r in range(R)]
        before = builder.block
        loop, after = builder.append_basic_block("sum"), builder.append_basic_block("summed")
        builder.branch(loop)
        builder.position_at_end(loop)
        left, a_at, b_at = builder.phi(_word), builder.phi(_word), builder.phi(_word)
        sums = [[builder.phi(_vector) for _ in range(N)] for _ in range(R)]
        found = [
            code.load(builder.add(a_at, _word(i * LANES * _BYTES)), masks[i]) for i in range(N)
        ]
        following = []
        for r in range(R):
            number = code.spread(builder.add(b_at, b_rows[r]))
            following.append(
                [code.multiply_add(number, found[i], sums[r][i]) for i in range(N)]
            )
        left_after = builder.sub(left, _word(1))
        moves = [
            (left, n, left_after),
            (a_at, a, builder.add(a_at, a_bytes)),
            (b_at, b, builder.add(b_at, b_bytes)),
        ]
        zeros = ir.Constant(_vector, [0.0] * LANES)
        moves += [(sums[r][i], zeros, following[r][i]) for r in range(R) for i in range(N)]
        for phi, first, then in moves:
            phi.add_incoming(first, before)
            phi.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed(">", left_after, _word(0)), loop, after)
        builder.position_at_end(after)

        for r in range(R):
            row = code.place(c, builder.mul(c_row, _word(r)))
            for i in range(N):
                at = builder.add(row, _word(i * LANES * _BYTES))
                before_it = code.load(at, added[i == N - 1])
                code.store(builder.fadd(following[r][i], before_it), at, masks[i])

    i = types.int64
    return types.void(i, i, i, i, i, i, i, i, i, i, i, types.boolean), generate


@intrinsic
def _turn(
    typing_context: Any, to: Any, origin: Any, stride: Any, rows: Any, columns: Any
) -> Any:
    """Transpose 16 by 16 numbers at address `origin` to `to`, whose rows are TURNED apart.

    Of them `rows` rows and `columns` columns are there; the others are taken as zero.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, origin, stride, rows, columns = values
        code = _Code(builder)
        mask = code.below(columns)
        none = ir.Constant(_mask, [0] * LANES)
        half, lines = LANES // 2, []
        for i in range(LANES):
            here = builder.select(builder.icmp_signed(">", rows, _word(i)), mask, none)
            lines.append(code.load(code.place(origin, builder.mul(stride, _word(i))), here))

        def zipped(x: Any, y: Any, begin: int) -> Any:
            lanes = [n for i in range(begin, begin + half) for n in (i, LANES + i)]
            return builder.shuffle_vector(
                x, y, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
            )

        for _ in range(4):  # zipping halves together, as in a perfect shuffle of cards
            pairs = [(lines[i], lines[i + half]) for i in range(half)]
            lines = [zipped(x, y, begin) for x, y in pairs for begin in (0, half)]
        for i, line in enumerate(lines):
            code.store(line, builder.add(to, _word(i * TURNED * _BYTES)))
        return context.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i, i), generate


@intrinsic
def _room(typing_context: Any) -> Any:
    """Address of room on the stack for TURNED by TURNED numbers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.ArrayType(_single, TURNED * TURNED)
        slot = cgutils.alloca_once(builder, kind)
        slot.align = 64
        return builder.ptrtoint(slot, _word)

    return types.int64(), generate


def _multiply(
    turn_a: Any,
    turn_b: Any,
    m_at: Any,
    n_at: Any,
    k_at: Any,
    alpha: Any,
    a: Any,
    lda: Any,
    b: Any,
    ldb: Any,
    beta: Any,
    c: Any,
    ldc: Any,
) -> None:
    """C = op(A) op(B) + beta C with the arguments of sgemm; alpha is taken as 1."""
    m, n, k = np.int64(m_at[0]), np.int64(n_at[0]), np.int64(k_at[0])
    a_step, c_row, add = np.int64(lda[0]), np.int64(ldc[0]), beta[0] != 0
    b_row, b_step = (1, np.int64(ldb[0])) if turn_b[0] == _TURN else (np.int64(ldb[0]), 1)
    turned = turn_a[0] == _TURN
    room = _room()
    n_vectors = (m + LANES - 1) // LANES
    n_columns = (n_vectors + VECTORS - 1) // VECTORS
    for column in range(n_columns):
        # Vectors and rows are shared out evenly, so that no tile is much smaller than others.
        first = column * n_vectors // n_columns
        vectors = (column + 1) * n_vectors // n_columns - first
        first *= LANES
        last = min(m - first, vectors * LANES) - (vectors - 1) * LANES
        most = ROWS_4 if vectors == VECTORS else ROWS_FEWER
        n_tiles = (n + most - 1) // most
        depth = TURNED if turned else k
        for low in range(0, k, depth):
            deep = min(depth, k - low)
            a_at, step = a + _BYTES * (first + low * a_step), a_step
            if turned:
                a_at, step = room, TURNED
                for j in range(0, vectors * LANES, LANES):
                    for i in range(0, deep, LANES):
                        there = a + _BYTES * ((first + j) * a_step + low + i)
                        here = room + _BYTES * (i * TURNED + j)
                        _turn(here, there, a_step, m - first - j, deep - i)
            for tile in range(n_tiles):
                row = tile * n // n_tiles
                rows = (tile + 1) * n // n_tiles - row
                b_at = b + _BYTES * (row * b_row + low * b_step)
                c_at = c + _BYTES * (first + row * c_row)
                _tile(
                    rows, vectors, last, deep, a_at, step, b_at, b_row, b_step, c_at, c_row,
                    add or low > 0,
                )  # fmt: skip


def address() -> int:
    """Address of `_multiply`."""
    return address_of(_multiply, "ccnnnpininpin", np.dtype(np.float32))
