"""The words of `kgmrf.kernels.lanes` for Numba: eight numbers are one value of LLVM."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_INT = ir.IntType(32)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="kgmrf.lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    if isinstance(kind, types.CPointer):
        return array
    return context.make_array(kind)(context, builder, array).data


def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = _data(context, builder, kind, array)
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _library(builder: Any, name: str, count: int) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * count)
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f64")


def _everywhere(builder: Any, x: Any) -> Any:
    blank = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
    first = builder.insert_element(blank, x, ir.Constant(_INT, 0))
    zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
    return builder.shuffle_vector(first, blank, zeros)


def _first(builder: Any, n: Any) -> Any:
    index = ir.Constant(ir.VectorType(n.type, LANES), list(range(LANES)))
    return builder.icmp_signed("<", index, _everywhere(builder, n))


@intrinsic
def load(typing: Any, a: Any, i: Any) -> Any:
    """Lanes a[i] ... a[i + 7]."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], args[0], args[1]))
        value.align = 8
        return value

    return _lanes(a, types.intp), build


@intrinsic
def load_first(typing: Any, a: Any, i: Any, n: Any) -> Any:
    """Lanes a[i] ... a[i + n - 1], then zeros."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1])
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        how = [place, ir.Constant(_INT, 8), _first(builder, args[2]), zero]
        kind = ir.FunctionType(_VECTOR, [arg.type for arg in how])
        name = f"llvm.masked.load.v{LANES}f64.p0" + f"v{LANES}f64" * ("*" in str(place.type))
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), how)

    return _lanes(a, types.intp, types.intp), build


def _rows(context: Any, builder: Any, kind: Any, array: Any, at: Any, n: Any) -> Any:
    """Where the rows of an 8 x 8 block lie, and the rows."""
    places = []
    for _ in range(LANES):
        places.append(_place(context, builder, kind, array, at))
        at = builder.add(at, n)
    rows = [builder.load(place) for place in places]
    for row in rows:
        row.align = 8
    return places, rows


def _flipped(builder: Any, rows: Any) -> Any:
    for step in (1, 2, 4):  # of two rows ``step`` apart, blocks of that size change places
        low = [k + LANES - step if k & step else k for k in range(LANES)]
        high = [k + LANES if k & step else k + step for k in range(LANES)]
        for k in range(LANES):
            if not k & step:
                pair = rows[k], rows[k + step]
                for to, mask in ((k, low), (k + step, high)):
                    which = ir.Constant(ir.VectorType(_INT, LANES), mask)
                    rows[to] = builder.shuffle_vector(*pair, which)
    return rows


@intrinsic
def flip(typing: Any, a: Any, i: Any, n: Any, b: Any, j: Any, m: Any) -> Any:
    """Block j of b = block i of a, transposed."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, i, n, b, j, m = args
        rows = _rows(context, builder, signature.args[0], a, i, n)[1]
        for row in _flipped(builder, rows):
            place = _place(context, builder, signature.args[3], b, j)
            builder.store(row, place).align = 8
            j = builder.add(j, m)
        return context.get_dummy_value()

    return types.void(a, types.intp, types.intp, b, types.intp, types.intp), build


@intrinsic
def add_flip(typing: Any, a: Any, i: Any, j: Any, n: Any, x: Any) -> Any:
    """Block j += x block i, transposed."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, i, j, n, x = args
        rows = _rows(context, builder, signature.args[0], array, i, n)[1]
        places, old = _rows(context, builder, signature.args[0], array, j, n)
        share = _everywhere(builder, x)
        for place, before, row in zip(places, old, _flipped(builder, rows), strict=True):
            new = builder.call(_library(builder, "fma", 3), [share, row, before])
            builder.store(new, place).align = 8
        return context.get_dummy_value()

    return types.void(a, types.intp, types.intp, types.intp, types.float64), build


@intrinsic
def store(typing: Any, a: Any, i: Any, v: Any) -> Any:
    """a[i] ... a[i + 7] = v."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], place).align = 8
        return context.get_dummy_value()

    return types.void(a, types.intp, _lanes), build


@intrinsic
def spread(typing: Any, x: Any) -> Any:
    """``x`` in every lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _everywhere(builder, args[0])

    return _lanes(types.float64), build


@intrinsic
def fma(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """X y + z."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_library(builder, "fma", 3), args)

    return _lanes(_lanes, _lanes, _lanes), build


@intrinsic
def root(typing: Any, x: Any) -> Any:
    """Square root."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_library(builder, "sqrt", 1), args)

    return _lanes(_lanes), build


@intrinsic
def above(typing: Any, x: Any, y: Any, p: Any, q: Any) -> Any:
    """``p`` where x > y, else ``q``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return _lanes(_lanes, _lanes, _lanes, _lanes), build


@intrinsic
def first(typing: Any, n: Any, p: Any, q: Any) -> Any:
    """``p`` in the first n lanes, else ``q``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(_first(builder, args[0]), args[1], args[2])

    return _lanes(types.intp, _lanes, _lanes), build


@intrinsic
def any_above(typing: Any, x: Any, y: Any) -> Any:
    """Whether x > y in some lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_ordered(">", *args), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(_lanes, _lanes), build


def _in_pairs(builder: Any, x: Any, join: Any) -> Any:
    parts = [builder.extract_element(x, ir.Constant(_INT, k)) for k in range(LANES)]
    while len(parts) > 1:
        parts = [join(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """Sum of the lanes, in pairs."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _in_pairs(builder, args[0], builder.fadd)

    return types.float64(_lanes), build


@intrinsic
def highest(typing: Any, x: Any) -> Any:
    """The largest lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def larger(x: Any, y: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        return _in_pairs(builder, args[0], larger)

    return types.float64(_lanes), build


@intrinsic
def bare(typing: Any, a: Any) -> Any:
    """The address of the numbers: one word to hand on where an array is seven. What is read
    and written through it is not checked, and does not keep the array alive."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _data(context, builder, signature.args[0], args[0])

    return types.CPointer(a.dtype)(a), build


@intrinsic
def after(typing: Any, a: Any, n: Any) -> Any:
    """The address of the n-th number."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return a(a, types.intp), build


@intrinsic
def fetch(typing: Any, a: Any, i: Any) -> Any:
    """a[i] will be needed soon."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = _data(context, builder, signature.args[0], args[0])
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _INT, _INT, _INT])
        name = "llvm.prefetch.p0i8" if "*" in str(place.type) else "llvm.prefetch.p0"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [place, *(ir.Constant(_INT, k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(a, types.intp), build


@intrinsic
def four_rows(typing: Any, a: Any, i: Any, down: Any, along: Any, j: Any) -> Any:
    """Four rows of a product with the 8 x 8 block at j. All sums stay in registers."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        array, i, down, along, j = args
        data, eight = _data(context, builder, kind, array), ir.Constant(j.type, LANES)
        sums: list[Any] = [None] * 4
        for _ in range(LANES):
            right = builder.load(_place(context, builder, kind, array, j))
            right.align = 8
            at = i
            for k in range(4):
                factor = _everywhere(builder, builder.load(builder.gep(data, [at])))
                terms = [factor, right] if sums[k] is None else [factor, right, sums[k]]
                join = _library(builder, "fma", 3)
                sums[k] = builder.fmul(*terms) if sums[k] is None else builder.call(join, terms)
                at = builder.add(at, down)
            i, j = builder.add(i, along), builder.add(j, eight)
        return context.make_tuple(builder, signature.return_type, sums)

    return types.UniTuple(_lanes, 4)(a, *[types.intp] * 4), build


@intrinsic
def dense_row(
    typing: Any, a: Any, i: Any, n: Any, j: Any, to: Any, plus: Any, x: Any, d: Any
) -> Any:
    """A row of x P + A B of d x d matrices of lanes. All sums stay in registers."""
    if not isinstance(d, types.IntegerLiteral):
        return None
    width = d.literal_value

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, i, n, j, to, plus, share, _ = args
        kind, join = signature.args[0], _library(builder, "fma", 3)

        def places(at: Any, step: Any, count: int) -> Any:
            for _ in range(count):
                yield _place(context, builder, kind, array, at)
                at = builder.add(at, step)

        def lanes(place: Any) -> Any:
            value = builder.load(place)
            value.align = 8
            return value

        eight = ir.Constant(j.type, LANES)
        sums: list[Any] = [ir.Constant(_VECTOR, [0.0] * LANES)] * width
        right = places(j, eight, width * width)
        for place in places(i, n, width):
            left = lanes(place)
            sums = [builder.call(join, [left, lanes(next(right)), y]) for y in sums]
        rows = zip(places(to, eight, width), places(plus, eight, width), sums, strict=True)
        done = [(place, builder.call(join, [share, lanes(p), y])) for place, p, y in rows]
        for place, value in done:
            builder.store(value, place).align = 8
        return context.get_dummy_value()

    return types.void(a, *[types.intp] * 5, _lanes, d), build


@intrinsic
def div(typing: Any, x: Any, y: Any) -> Any:
    """X / y."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fdiv(*args)

    return _lanes(_lanes, _lanes), build


def _teach(symbol: Any, name: str) -> None:
    class Operator(ConcreteTemplate):
        key = symbol
        cases = (_lanes(_lanes, _lanes),)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, name)(*args)

    infer_global(symbol)(Operator)
    lower_builtin(symbol, _lanes, _lanes)(build)


_teach(operator.add, "fadd")
_teach(operator.sub, "fsub")
_teach(operator.mul, "fmul")
