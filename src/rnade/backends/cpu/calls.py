"""Compiling for the CPU kernels, and calls through addresses.

The kernels reach BLAS, the families and the activations through addresses given at run time. So
each is compiled once for a precision, whatever it is combined with, and cached on disk by itself.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

import inspect
from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from rnade.backends.garbage import collection_paused

# Numba came to have types of its own, which differ from version to version.
_numba: Any = numba
types: Any = _numba.types
cgutils: Any = _numba.core.cgutils
intrinsic: Callable[[Callable[..., Any]], Any] = _numba.extending.intrinsic

# Contracting a * b + c and reordering sums leave infinities and NaN what they are; the other
# "fast" flags would not, and the trainer looks for NaN to skip an update.
FAST = frozenset({"contract", "reassoc"})


# Places in `functions`, the addresses that every kernel is given: BLAS's ?gemm and our narrow
# product, which is 0 to use BLAS; a transpose; a family's epilogue or draw; two passes over the
# hidden units.
PRODUCT, NARROW, TURN, LAST, ADVANCE, RETREAT = range(6)

_OPTIONS: dict[str, Any] = {"fastmath": set(FAST), "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a kernel on first use, without the interpreter lock, cached on disk if possible."""
    function = inspect.unwrap(function)  # tests wrap every function in checks of its types
    options = {"nogil": True, "no_cfunc_wrapper": True, **_OPTIONS}
    try:
        kernel = _numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        kernel = _numba.njit(**options)(function)
    kernel.compile = collection_paused()(kernel.compile)
    return kernel


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of kernels that disappears into them, so that its constants fold away.

    Python never calls it: without the wrappers for that it compiles in half the time.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS}
    return _numba.njit(forceinline=True, **options)(inspect.unwrap(function))


def address_of(function: Callable[..., None], arguments: str, dtype: np.dtype[Any]) -> int:
    """Compile a C function for one precision and return its address.

    Parameters
    ----------
    function : callable
        A function of pointers and whole numbers that returns nothing; the same object each time.
    arguments : str
        A letter for each argument: "p" a pointer to `dtype`, "i" a whole number.
    dtype : float32 or float64
    """
    pointer = types.CPointer(types.float32 if dtype == np.float32 else types.float64)
    signature = types.void(*[pointer if letter == "p" else types.int64 for letter in arguments])
    function = inspect.unwrap(function)
    key = (function, arguments, dtype)
    if key not in _functions:
        cfunc = collection_paused()(_numba.cfunc(signature, cache=True, **_OPTIONS))
        try:
            made = cfunc(function)
        except RuntimeError:  # as in `compiled`
            made = _numba.cfunc(signature, **_OPTIONS)(function)
        _functions.setdefault(key, made)  # another thread may have been quicker
    address: int = _functions[key].address
    return address


_functions: dict[Any, Any] = {}  # keeps the compiled code alive


@intrinsic
def call(typing_context, address, arguments):
    """Call the C function at `address` with a tuple of integers and addresses; returns nothing."""

    def generate(context, builder, signature, values):
        word = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word] * len(arguments))
        pointer = builder.inttoptr(values[0], function.as_pointer())
        builder.call(pointer, cgutils.unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    words = types.UniTuple(types.int64, len(arguments))
    return types.void(types.int64, words), generate


@intrinsic
def pointer_to(typing_context, room):
    """Pointer to the first number of a contiguous array."""

    def generate(context, builder, signature, values):
        return context.make_array(room)(context, builder, values[0]).data

    return types.CPointer(room.dtype)(room), generate


@intrinsic
def pointers(typing_context, addresses, like):
    """A tuple of addresses as pointers to numbers as in the array `like`."""
    kind = types.UniTuple(types.CPointer(like.dtype), len(addresses))

    def generate(context, builder, signature, values):
        to = context.get_value_type(kind.dtype)
        found = [builder.inttoptr(a, to) for a in cgutils.unpack_tuple(builder, values[0])]
        return context.make_tuple(builder, kind, found)

    return kind(addresses, like), generate


@intrinsic
def whole_numbers(typing_context, pointer):
    """The pointer as one to 64-bit whole numbers."""
    kind = types.CPointer(types.int64)

    def generate(context, builder, signature, values):
        return builder.bitcast(values[0], context.get_value_type(kind))

    return kind(pointer), generate


@intrinsic
def beyond(typing_context, pointer, n):
    """The pointer n numbers on."""

    def generate(context, builder, signature, values):
        return builder.gep(values[0], [values[1]])

    return pointer(pointer, types.int64), generate


@intrinsic
def at(typing_context, pointer, i):
    """Address of the i-th number that a pointer points to."""

    def generate(context, builder, signature, values):
        return builder.ptrtoint(builder.gep(values[0], [values[1]]), ir.IntType(64))

    return types.int64(pointer, types.int64), generate


@intrinsic
def gemm(typing_context, address, turn_a, turn_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """C = op(A) op(B) + beta C by the Fortran ?gemm at `address`; `beta` gives the precision.

    op(A) is (m, k), op(B) is (k, n) and C is (m, n), all column-major: a row-major matrix is its
    transpose. `turn_a` and `turn_b` say whether to transpose; a, b and c are addresses.
    """

    def generate(context, builder, signature, values):
        f, turn_a, turn_b, m, n, k, a, lda, b, ldb, beta, c, ldc = values
        byte, integer = ir.IntType(8), ir.IntType(32)

        def pointer_to(value):
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, byte.as_pointer())

        def letter(turn):
            return pointer_to(builder.select(turn, byte(ord("T")), byte(ord("N"))))

        def number(value):
            return pointer_to(builder.trunc(value, integer))

        def address_of(value):
            return builder.inttoptr(value, byte.as_pointer())

        arguments = [letter(turn_a), letter(turn_b), number(m), number(n), number(k)]
        arguments += [pointer_to(beta.type(1)), address_of(a), number(lda)]
        arguments += [address_of(b), number(ldb), pointer_to(beta), address_of(c), number(ldc)]
        function = ir.FunctionType(ir.VoidType(), [byte.as_pointer()] * len(arguments))
        builder.call(builder.inttoptr(f, function.as_pointer()), arguments)
        return context.get_dummy_value()

    i, flag = types.int64, types.boolean
    return types.void(i, flag, flag, i, i, i, i, i, i, i, beta, i, i), generate


@intrinsic
def copy(typing_context, to, begin, address, n):
    """Copy n numbers from an address to to[begin] and on; the two places must not overlap."""

    def generate(context, builder, signature, values):
        there = builder.gep(values[0], [values[1]])
        here = builder.inttoptr(values[2], there.type)
        cgutils.raw_memcpy(builder, there, here, values[3], _item_size(context, there))
        return context.get_dummy_value()

    return types.void(to, types.int64, types.int64, types.int64), generate


@intrinsic
def clear(typing_context, to, begin, n):
    """Set the n numbers from to[begin] on to 0."""

    def generate(context, builder, signature, values):
        there = builder.gep(values[0], [values[1]])
        cgutils.memset(builder, there, builder.mul(values[2], _item_size(context, there)), 0)
        return context.get_dummy_value()

    return types.void(to, types.int64, types.int64), generate


def _item_size(context, pointer):
    return ir.IntType(64)(context.get_abi_sizeof(pointer.type.pointee))
