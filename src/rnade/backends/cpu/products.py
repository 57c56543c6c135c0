"""The matrix products of the CPU kernels: narrow ones of our own, and BLAS.

V_d is narrow, as wide as a family has outputs, some dozens, and a minibatch has few rows. BLAS
first copies such matrices into an order of its own or, where it does not, multiplies them at half
its speed. Here a tile of C stays in registers, up to 24 vectors of 64 bytes; the vectors of B are
loaded from where they lie, and the numbers of A one by one, each for all vectors of its row.
Meanwhile memory that comes next is fetched, a cache line for each row of B.

With shorter vectors there are too few registers for this, and BLAS multiplies. So it does for
families of few outputs, which would leave most of a vector empty.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import codegen, config

from rnade.backends.cpu.calls import (
    NARROW,
    PRODUCT,
    address_of,
    beyond,
    call,
    gemm,
    inlined,
    intrinsic,
    types,
)
from rnade.backends.cpu.lanes import LANES, transpose

VECTOR_BYTES = 64
FEWEST_OUTPUTS = 17  # more than a vector of float32; with fewer BLAS was measured to be faster
# Rows of a tile, by the number of vectors in a row: sums enough to keep two multipliers busy.
MOST_ROWS = (0, 8, 6, 6, 6)
MOST_VECTORS = len(MOST_ROWS) - 1
DEPTH = 128  # rows of B taken together, so that they stay in the first-level cache


@inlined
def multiply(functions, a, b, c, strides, sizes, keep, ahead):
    """C = A B + keep C.

    Parameters
    ----------
    functions : addresses, of which two ways to multiply are used
    a, b, c : addresses of A (m, k), B (k, n) and C (m, n)
    strides : numbers from row to row and from column to column of A, one of them 1; from row to
        row of B and of C, whose rows lie in one piece
    sizes : m, n and k
    keep : 0 or 1, in the numbers' precision
    ahead : address of memory that will be used next
    """
    a_row, a_column, b_row, c_row = strides
    m, n, k = sizes
    if functions[NARROW] != 0:
        kept = 0 if keep == 0 else 1
        call(functions[NARROW], (a, b, c, a_row, a_column, b_row, c_row, m, n, k, kept, ahead))
    elif a_column == 1:
        gemm(functions[PRODUCT], False, False, n, m, k, b, b_row, a, a_row, keep, c, c_row)
    else:
        gemm(functions[PRODUCT], False, True, n, m, k, b, b_row, a, a_column, keep, c, c_row)


@cache
def wide_vectors() -> bool:
    """Whether numba compiles for vectors of 64 bytes: the processor's, or the environment's."""
    told: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    found: str = codegen.get_host_cpu_features()
    return "+avx512f" in (found if told is None else told).split(",")


def narrow_pays(n_outputs: int) -> bool:
    """Whether `_narrow` is faster than BLAS for so many outputs. It is right everywhere."""
    return n_outputs >= FEWEST_OUTPUTS and wide_vectors()


def narrow_address(dtype: np.dtype[Any]) -> int:
    """Address of `_narrow` for one precision."""
    return address_of(_narrow, "pppiiiiiiiip", dtype)


def turn_address(dtype: np.dtype[Any]) -> int:
    """Address of `_turn` for one precision."""
    return address_of(_turn, "ppiii", dtype)


def _narrow(a, b, c, a_row, a_column, b_row, c_row, m, n, k, keep, ahead):
    """As `multiply`, with `keep` 0 or 1."""
    width = _vector_width(a)
    fetched = 0
    for step in range(0, k, DEPTH):
        depth = min(DEPTH, k - step)
        for j in range(0, n, MOST_VECTORS * width):
            columns = min(MOST_VECTORS * width, n - j)
            vectors = (columns + width - 1) // width
            tiles = (m + MOST_ROWS[vectors] - 1) // MOST_ROWS[vectors]
            for t in range(tiles):  # of nearly one height
                i, end = t * m // tiles, (t + 1) * m // tiles
                _tile(
                    beyond(a, i * a_row + step * a_column),
                    a_row,
                    a_column,
                    beyond(b, step * b_row + j),
                    b_row,
                    beyond(c, i * c_row + j),
                    c_row,
                    end - i,
                    vectors,
                    columns - (vectors - 1) * width,
                    depth,
                    1 if step > 0 else keep,
                    beyond(ahead, fetched),
                )
                fetched += depth * width


def _turn(a, out, m, n, out_row):
    """Write the transpose of A, (m, n) in one piece; `out_row` numbers from row to row of it."""
    if m < LANES or n < LANES:
        for i in range(m):
            for j in range(n):
                out[j * out_row + i] = a[i * n + j]
        return
    for i in range(0, m, LANES):
        # The last blocks overlap those before, so that nothing beyond is read or written.
        top = min(i, m - LANES)
        for j in range(0, n, LANES):
            left = min(j, n - LANES)
            transpose(out, left * out_row + top, out_row, a, top * n + left, n)


@intrinsic
def _vector_width(typing_context, pointer):
    """Numbers in a vector."""

    def generate(context, builder, signature, values):
        return ir.IntType(64)(VECTOR_BYTES // _bytes(pointer))

    return types.int64(pointer), generate


def _bytes(pointer):
    return 4 if pointer.dtype == types.float32 else 8


@intrinsic
def _tile(
    typing_context, a, a_row, a_column, b, b_row, c, c_row, rows, vectors, last, depth, keep, ahead
):
    """One tile of C: `rows` by `vectors`, the last vector having `last` columns."""

    def generate(context, builder, signature, values):
        rows, vectors = values[7:9]
        case = builder.add(builder.mul(rows, rows.type(MOST_VECTORS + 1)), vectors)
        done = builder.append_basic_block()
        switch = builder.switch(case, done)
        for C in range(1, MOST_VECTORS + 1):
            for R in range(1, MOST_ROWS[C] + 1):
                block = builder.append_basic_block()
                switch.add_case(case.type(R * (MOST_VECTORS + 1) + C), block)
                builder.position_at_end(block)
                _Tile(builder, _bytes(a), values, R, C).generate()
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    i = types.int64
    return types.void(a, i, i, b, i, c, i, i, i, i, i, i, a), generate


class _Tile:
    """Instructions of a tile of R rows and C vectors."""

    def __init__(self, builder: Any, size: int, values: Any, R: int, C: int) -> None:
        self.builder, self.size, self.values, self.R, self.C = builder, size, values, R, C
        self.width = VECTOR_BYTES // size
        self.vector = ir.VectorType(ir.FloatType() if size == 4 else ir.DoubleType(), self.width)
        self.word = ir.IntType(64)
        # As many bits as the last vector has columns.
        bits = builder.sub(builder.shl(self.word(1), values[9]), self.word(1))
        mask = ir.VectorType(ir.IntType(1), self.width)
        self.mask = builder.bitcast(builder.trunc(bits, ir.IntType(self.width)), mask)

    def generate(self) -> None:
        builder, word = self.builder, self.word
        a, a_row, a_column, b, b_row, c, c_row, *_, depth, keep, ahead = self.values
        before, loop = builder.block, builder.append_basic_block()
        after = builder.append_basic_block()
        zero = ir.Constant(self.vector, [0.0] * self.width)
        builder.branch(loop)

        builder.position_at_end(loop)
        step = builder.phi(word)
        sums = [builder.phi(self.vector) for _ in range(self.R * self.C)]
        self.fetch(builder.gep(ahead, [builder.mul(step, word(self.width))]))
        b_at = builder.gep(b, [builder.mul(step, b_row)])
        b_vectors = [self.load(b_at, j) for j in range(self.C)]
        a_at = builder.gep(a, [builder.mul(step, a_column)])
        new = []
        for i in range(self.R):
            number = self.splat(builder.load(builder.gep(a_at, [builder.mul(a_row, word(i))])))
            for j in range(self.C):
                product = builder.fmul(number, b_vectors[j], flags=("contract",))
                new.append(builder.fadd(sums[i * self.C + j], product, flags=("contract",)))
        following = builder.add(step, word(1))
        step.add_incoming(word(0), before)
        step.add_incoming(following, loop)
        for total, more in zip(sums, new, strict=True):
            total.add_incoming(zero, before)
            total.add_incoming(more, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)

        builder.position_at_end(after)
        with builder.if_else(builder.icmp_signed("!=", keep, word(0))) as (kept, written):
            for branch in kept, written:
                with branch:
                    for i in range(self.R):
                        c_at = builder.gep(c, [builder.mul(c_row, word(i))])
                        for j in range(self.C):
                            total = new[i * self.C + j]
                            if branch is kept:
                                total = builder.fadd(total, self.load(c_at, j))
                            self.store(total, c_at, j)

    def place(self, row: Any, j: int) -> Any:
        there = self.builder.gep(row, [self.word(j * self.width)])
        return self.builder.bitcast(there, self.vector.as_pointer())

    def load(self, row: Any, j: int) -> Any:
        """The j-th vector of a row; zeros beyond the last column."""
        if j < self.C - 1:
            return self.builder.load(self.place(row, j), align=self.size)
        zero = ir.Constant(self.vector, [0.0] * self.width)
        return self.masked("load", self.vector, self.place(row, j), None, zero)

    def store(self, value: Any, row: Any, j: int) -> None:
        if j < self.C - 1:
            self.builder.store(value, self.place(row, j), align=self.size)
        else:
            self.masked("store", ir.VoidType(), value, self.place(row, j), None)

    def masked(self, name: str, result: Any, *arguments: Any) -> Any:
        """A masked load or store; None stands for the alignment, after which comes the mask."""
        where = arguments.index(None)
        align = ir.IntType(32)(self.size)
        given = [*arguments[:where], align, self.mask, *arguments[where + 1 :]]
        kind = ir.FunctionType(result, [value.type for value in given])
        name = f"llvm.masked.{name}.v{self.width}f{8 * self.size}.p0"
        function = self.builder.module.declare_intrinsic(name, (), kind)
        return self.builder.call(function, given)

    def splat(self, number):
        some = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(some, number, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(first, some, zeros)

    def fetch(self, pointer):
        """Begin to bring a line of memory into the second-level cache."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = self.builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        to_read, second_level, data = number(0), number(2), number(1)
        there = self.builder.bitcast(pointer, byte)
        self.builder.call(function, [there, to_read, second_level, data])
