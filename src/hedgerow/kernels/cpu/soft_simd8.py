"""A soft split for eight pixels at once, from what it reads to the lists of its children, without leaving registers.

The same numbers as pixel by pixel, so that it does not matter which pixels stand side by side.
Callers guarantee room for eight wherever eight are read or written.
"""

from llvmlite import ir
from numba import types

from hedgerow.kernels.compiling import intrinsic
from hedgerow.kernels.cpu.simd8 import EIGHT, FLOAT, FLOATS, INTS, all_eight, place_of, write_kept

# A product and the sum that takes it may be rounded once, as in `multiply_add_part`.
ONCE = ("contract",)
# As in `blocks.exp`: 2^x between -1/2 and 1/2, the highest power first.
POWERS = (1.3264726149e-3, 9.6715129912e-3, 5.5507335812e-2, 2.4022242427e-1, 6.9314700365e-1, 1.0)


def _eight_of(number: float) -> ir.Constant:
    return ir.Constant(FLOATS, [FLOAT(number)] * EIGHT)


def _each(builder, name, numbers):
    """An operation of LLVM's on each of eight numbers."""
    operation = builder.module.declare_intrinsic(f"llvm.{name}.v{EIGHT}f32", (), ir.FunctionType(FLOATS, [FLOATS]))
    return builder.call(operation, [numbers])


def _exp(builder, numbers):
    """`blocks.exp` of eight numbers that are not positive."""
    x = builder.fmul(numbers, _eight_of(1.442695041))
    is_low = builder.fcmp_ordered("<", x, _eight_of(-125))  # NaN stays NaN
    x = builder.select(is_low, _eight_of(-125), x)
    power = _each(builder, "floor", builder.fadd(x, _eight_of(0.5)))
    x = builder.fsub(x, power)
    tail = _eight_of(POWERS[0])
    for factor in POWERS[1:]:
        tail = builder.fadd(builder.fmul(tail, x, flags=ONCE), _eight_of(factor), flags=ONCE)
    whole = builder.shl(builder.fptosi(power, INTS), ir.Constant(INTS, [23] * EIGHT))
    return builder.bitcast(builder.add(builder.bitcast(tail, INTS), whole), FLOATS)


def _branched(builder, sharpness, threshold, mass, value):
    """What of eight masses goes right, and what left."""
    z = builder.fmul(all_eight(builder, sharpness), builder.fsub(value, all_eight(builder, threshold)))
    away = _exp(builder, builder.fneg(_each(builder, "fabs", z)))
    likely = builder.fdiv(_eight_of(1), builder.fadd(_eight_of(1), away))
    unlikely = builder.fmul(away, likely)
    is_right = builder.fcmp_ordered(">=", z, _eight_of(0))
    to_right, to_left = builder.select(is_right, likely, unlikely), builder.select(is_right, unlikely, likely)
    return builder.fmul(mass, to_right), builder.fmul(mass, to_left)


@intrinsic
def branch_eight(typing_context, mass, value, right, first, sharpness, threshold):
    """Replace the eight values from `first` by what goes left of their masses, and fill `right` there."""

    def generate(context, builder, signature, arguments):
        ways = (context, builder, signature, arguments)
        into_left, into_right = place_of(*ways, 1, 3, FLOATS), place_of(*ways, 2, 3, FLOATS)
        masses = builder.load(place_of(*ways, 0, 3, FLOATS), align=4)
        to_right, to_left = _branched(builder, arguments[4], arguments[5], masses, builder.load(into_left, align=4))
        builder.store(to_right, into_right, align=4)
        builder.store(to_left, into_left, align=4)
        return context.get_dummy_value()

    return types.void(mass, value, right, types.int64, types.float32, types.float32), generate


@intrinsic
def share_eight(
    typing_context, pixel, mass, value, first, among, sharpness, threshold, tolerance, into_pixel, into_mass, at,
    left_at,
):  # fmt: skip
    """Share the eight of a list from `first` out to the two children: (how many go right, how many left).

    among: bits of those that count; into_pixel, into_mass: the right child's list, which goes on from `at`; the left
    child's takes the place of this one, and goes on from `left_at`
    """

    def generate(context, builder, signature, arguments):
        ways, limit = (context, builder, signature, arguments), all_eight(builder, arguments[7])
        pixels = builder.load(place_of(*ways, 0, 3, INTS), align=4)
        masses, values = (builder.load(place_of(*ways, a, 3, FLOATS), align=4) for a in (1, 2))
        sides = _branched(builder, arguments[5], arguments[6], masses, values)
        counts = []
        for side, (p, m, start) in zip(sides, ((8, 9, 10), (0, 1, 11)), strict=True):
            is_kept = builder.bitcast(builder.fcmp_unordered(">", side, limit), ir.IntType(EIGHT))
            is_kept = builder.and_(is_kept, builder.trunc(arguments[4], ir.IntType(EIGHT)))
            into = place_of(*ways, p, start, INTS), place_of(*ways, m, start, FLOATS)
            counts.append(write_kept(context, builder, is_kept, pixels, side, *into))
        return context.make_tuple(builder, signature.return_type, counts)

    lists, number = (pixel, mass, value), types.float32
    given = (*lists, types.int64, types.int64, number, number, number, into_pixel, into_mass, types.int64, types.int64)
    return types.UniTuple(types.int64, 2)(*given), generate


@intrinsic
def weigh_eight(typing_context, out, first, weight, values, at, is_more):
    """out[first : first + 8] = weight * values[at : at + 8], or += if is_more; each product is rounded."""

    def generate(context, builder, signature, arguments):
        into = place_of(context, builder, signature, arguments, 0, 1, FLOATS)
        read = builder.load(place_of(context, builder, signature, arguments, 3, 4, FLOATS), align=4)
        product = builder.fmul(all_eight(builder, arguments[2]), read)
        together = builder.fadd(builder.load(into, align=4), product)
        builder.store(builder.select(arguments[5], together, product), into, align=4)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.float32, values, types.int64, types.boolean), generate


@intrinsic
def add_two_eight(typing_context, target, at, mass, other_mass, tolerance, source, start, other_start):
    """target[at : at + 8] += mass * source[start : start + 8], then the other; neither if its mass is too small.

    Too small is a mass that `keep_eight` would drop.
    """

    def generate(context, builder, signature, arguments):
        ways, limit = (context, builder, signature, arguments), all_eight(builder, arguments[4])
        into = place_of(*ways, 0, 1, FLOATS)
        total = builder.load(into, align=4)
        for m, start in ((2, 6), (3, 7)):
            loaded, factor = builder.load(place_of(*ways, 5, start, FLOATS), align=4), all_eight(builder, arguments[m])
            more = builder.fadd(total, builder.fmul(factor, loaded, flags=ONCE), flags=ONCE)
            # Not a product with 0, which an infinite vote would make NaN.
            total = builder.select(builder.fcmp_unordered(">", factor, limit), more, total)
        builder.store(total, into, align=4)
        return context.get_dummy_value()

    number, place = types.float32, types.int64
    return types.void(target, place, number, number, number, source, place, place), generate
