"""Vectors of 16 numbers for compiled code, so that kernels say what is computed side by side.

A loop over arrays is vectorised by the compiler only when it can tell that none of them overlap,
which with six arrays it gives up on. A value of the type `Lanes` is 16 floats or doubles that the
compiler puts in one register, or in two or four on machines with shorter ones. It has + - * and /,
and the functions below. Nothing here assumes that numbers are finite: NaN stays NaN.
"""

import math
import operator
from typing import Any

import numba.core.typing.templates
import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from rnade.backends.cpu.calls import intrinsic, types

LANES = 16

_extending: Any = numba.extending
_templates: Any = numba.core.typing.templates


class Lanes(types.Type):  # type: ignore[misc]
    """Numba type of a vector of 16 numbers."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@_extending.register_model(Lanes)
class _LanesModel(_extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(_scalar(kind.dtype), LANES))


def _scalar(dtype: Any) -> Any:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def _constant(dtype: Any, value: float) -> Any:
    return ir.Constant(ir.VectorType(_scalar(dtype), LANES), [value] * LANES)


def _define_operator(function: Any, instruction: str) -> None:
    @_templates.infer_global(function)
    class Template(_templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, arguments: Any, keywords: Any) -> Any:
            if len(arguments) == 2 and all(isinstance(kind, Lanes) for kind in arguments):
                return _templates.signature(arguments[0], *arguments)
            return None

    @_extending.lower_builtin(function, Lanes, Lanes)  # type: ignore[untyped-decorator]
    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        # "contract" lets a * b + c become one instruction; infinities and NaN are kept.
        return getattr(builder, instruction)(*values, flags=("contract",))


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_function, _instruction)


@intrinsic
def load(typing_context: Any, pointer: Any, at: Any) -> Any:
    """The 16 numbers from pointer[at] on; no alignment is assumed."""
    kind = Lanes(pointer.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_vector_pointer(builder, kind, values), align=_bytes(kind))

    return kind(pointer, types.int64), generate


@intrinsic
def store(typing_context: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Write 16 numbers to pointer[at] and on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        where = _vector_pointer(builder, value, values[:2])
        builder.store(values[2], where, align=_bytes(value))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, value), generate


def _vector_pointer(builder: Any, kind: Any, values: Any) -> Any:
    vector = ir.VectorType(_scalar(kind.dtype), LANES)
    return builder.bitcast(builder.gep(values[0], [values[1]]), vector.as_pointer())


def _bytes(kind: Any) -> int:
    return 4 if kind.dtype == types.float32 else 8


@intrinsic
def transpose(
    typing_context: Any, to: Any, to_at: Any, to_stride: Any, origin: Any, at: Any, stride: Any
) -> Any:
    """Transpose 16 rows of 16 numbers, from pointer `origin` to pointer `to`."""
    kind = Lanes(origin.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, to_at, to_stride, origin, at, stride = values

        def row(pointer: Any, begin: Any, stride: Any, i: int) -> Any:
            place = builder.add(begin, builder.mul(stride, stride.type(i)))
            return _vector_pointer(builder, kind, (pointer, place))

        def zipped(x: Any, y: Any, begin: int) -> Any:
            lanes = [n for i in range(begin, begin + LANES // 2) for n in (i, LANES + i)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
            return builder.shuffle_vector(x, y, mask)

        half, align = LANES // 2, _bytes(kind)
        rows = [builder.load(row(origin, at, stride, i), align=align) for i in range(LANES)]
        for _ in range(4):  # zipping halves together, as in a perfect shuffle of cards
            pairs = [(rows[i], rows[i + half]) for i in range(half)]
            rows = [zipped(x, y, begin) for x, y in pairs for begin in (0, half)]
        for i, vector in enumerate(rows):
            builder.store(vector, row(to, to_at, to_stride, i), align=align)
        return context.get_dummy_value()

    i = types.int64
    return types.void(to, i, i, origin, i, i), generate


@intrinsic
def splat(typing_context: Any, value: Any) -> Any:
    """16 times the same number."""
    kind = Lanes(value)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _splat(builder, value, values[0])

    return kind(value), generate


def _splat(builder: Any, dtype: Any, number: Any) -> Any:
    zeros = _constant(dtype, 0.0)
    first = builder.insert_element(zeros, number, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, zeros, mask)


@intrinsic
def like(typing_context: Any, x: Any, value: Any) -> Any:
    """16 times a number, rounded to the precision of x."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = context.cast(builder, values[1], types.float64, x.dtype)
        return _splat(builder, x.dtype, number)

    return x(x, types.float64), generate


@intrinsic
def where_less(typing_context: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    """`yes` where x < y, else `no`; a NaN is not less than anything."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, y, yes, no = values
        return builder.select(builder.fcmp_ordered("<", x, y), yes, no)

    return x(x, x, x, x), generate


@intrinsic
def where_number(typing_context: Any, x: Any, yes: Any) -> Any:
    """`yes` where x is a number, and NaN where x is NaN."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, yes = values
        return builder.select(builder.fcmp_ordered("ord", x, x), yes, x)

    return x(x, x), generate


@intrinsic
def root(typing_context: Any, x: Any) -> Any:
    """Square root."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = values[0].type
        name = f"llvm.sqrt.v{LANES}f{32 if x.dtype == types.float32 else 64}"
        function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind]))
        return builder.call(function, values)

    return x(x), generate


class _Arithmetic:
    """Instructions on vectors of one precision, for the functions below."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.builder, self.dtype = builder, kind.dtype
        self.single = kind.dtype == types.float32
        self.mantissa = 23 if self.single else 52
        self.words = ir.VectorType(ir.IntType(32 if self.single else 64), LANES)
        # log 2 in two parts, the first so short that a small whole number times it is exact.
        high = 0.693359375 if self.single else 0.693147180369123816490
        low = math.log(2) - high if self.single else 1.90821492927058770002e-10
        self.log_2_high, self.log_2_low = self.number(high), self.number(low)

    def number(self, value: float) -> Any:
        return _constant(self.dtype, float(np.float32(value)) if self.single else value)

    def word(self, value: int) -> Any:
        return ir.Constant(self.words, [value] * LANES)

    def add(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(x, y, flags=("contract",))

    def sub(self, x: Any, y: Any) -> Any:
        return self.builder.fsub(x, y, flags=("contract",))

    def mul(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y, flags=("contract",))

    def polynomial(self, x: Any, coefficients: list[float]) -> Any:
        """c[0] + c[1] x + c[2] x^2 + ... by Horner's rule."""
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.add(self.mul(total, x), self.number(c))
        return total

    @property
    def exp_terms(self) -> list[float]:
        """Taylor's coefficients of e**r, as many as count for |r| <= log(2) / 2."""
        return [1 / math.factorial(i) for i in range(8 if self.single else 14)]

    def reduced(self, x: Any) -> tuple[Any, Any]:
        """Split x = n log 2 + r with |r| <= log(2) / 2; give a t with n in its low bits, and r.

        Adding 1.5 times 2**mantissa rounds to the whole number n and leaves it there, whence it is
        shifted into the exponent.
        """
        rounder = self.number(1.5 * 2**self.mantissa)
        t = self.add(self.mul(x, self.number(1 / math.log(2))), rounder)
        n = self.sub(t, rounder)
        r = self.sub(self.sub(x, self.mul(n, self.log_2_high)), self.mul(n, self.log_2_low))
        return t, r

    def times_power(self, p: Any, t: Any) -> Any:
        """Multiply p by 2**n, with the n that t holds."""
        b = self.builder
        shifted = b.shl(b.bitcast(t, self.words), self.word(self.mantissa))
        return b.bitcast(b.add(b.bitcast(p, self.words), shifted), p.type)

    def select(self, comparison: str, x: Any, y: Any, yes: Any, no: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(comparison, x, y), yes, no)


@intrinsic
def exp(typing_context: Any, x: Any) -> Any:
    """e**x to about 1 unit in the last place; 0 and inf a little before the type's own limits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, do = values[0], _Arithmetic(builder, signature.return_type)
        t, r = do.reduced(x)
        p = do.polynomial(r, do.exp_terms)
        y = do.times_power(p, t)
        lowest, highest = (-86.5, 88.3) if do.single else (-707.5, 709.0)
        y = do.select("<", x, do.number(lowest), do.number(0.0), y)
        y = do.select(">", x, do.number(highest), do.number(math.inf), y)
        return do.select("ord", x, x, y, x)

    return x(x), generate


@intrinsic
def expm1(typing_context: Any, x: Any) -> Any:
    """e**x - 1 of numbers up to 0, to about 2 units in the last place however small they are."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, do = values[0], _Arithmetic(builder, signature.return_type)
        t, r = do.reduced(x)
        # 2**n (e**r - 1) + (2**n - 1): where n is 0 nothing is lost, else the two have one sign or
        # the second is the larger by far.
        p = do.mul(r, do.polynomial(r, do.exp_terms[1:]))
        power = do.times_power(do.number(1.0), t)
        y = do.add(do.mul(power, p), do.sub(power, do.number(1.0)))
        y = do.select("<", x, do.number(-50.0), do.number(-1.0), y)
        return do.select("ord", x, x, y, x)

    return x(x), generate


@intrinsic
def log(typing_context: Any, x: Any) -> Any:
    """Natural logarithm, to about 1 unit in the last place, of positive normal numbers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, do = values[0], _Arithmetic(builder, signature.return_type)
        # x = m 2**n with m from sqrt(1/2) to sqrt(2).
        kinds = (np.float32, np.int32) if do.single else (np.float64, np.int64)
        least = do.word(int(np.array(math.sqrt(0.5), kinds[0]).view(kinds[1])))
        bits, shift = builder.bitcast(x, do.words), do.word(do.mantissa)
        exponent = builder.ashr(builder.sub(bits, least), shift)
        m = builder.bitcast(builder.sub(bits, builder.shl(exponent, shift)), x.type)
        n = builder.sitofp(exponent, x.type)
        # With s = f / (2 + f): log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), and R by the minimax
        # polynomials of FreeBSD's msun (e_logf.c and e_log.c).
        f = do.sub(m, do.number(1.0))
        s = builder.fdiv(f, do.add(f, do.number(2.0)))
        w = do.mul(s, s)
        R = do.mul(w, do.polynomial(w, _LOG_32 if do.single else _LOG_64))
        square = do.mul(do.mul(f, f), do.number(0.5))
        tail = do.add(do.mul(s, do.add(square, R)), do.mul(n, do.log_2_low))
        y = do.add(do.mul(n, do.log_2_high), do.sub(f, do.sub(square, tail)))
        return do.select("<", x, do.number(math.inf), y, x)

    return x(x), generate


_LOG_32 = [0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841]
_LOG_64 = [
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
]
