"""Eight numbers at once, where the compiler does not come to it by itself: parts of the walk through soft trees.

Callers guarantee room for eight wherever eight are read or written.
"""

from llvmlite import ir
from numba import types
from numba.core.cgutils import global_constant

from hedgerow.kernels.compiling import intrinsic

EIGHT = 8
INT, LONG, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
INTS, FLOATS = ir.VectorType(INT, EIGHT), ir.VectorType(FLOAT, EIGHT)


def place_of(context, builder, signature, arguments, array, index, kind):
    """Pointer to the eight numbers of an array that begin at an index."""
    held = context.make_array(signature.args[array])(context, builder, arguments[array])
    return builder.bitcast(builder.gep(held.data, [arguments[index]]), kind.as_pointer())


def all_eight(builder, number):
    """A number, eight times."""
    first = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), number, INT(0))
    return builder.shuffle_vector(first, first, ir.Constant(INTS, [0] * EIGHT))


@intrinsic
def add_scaled_eight(typing_context, target, at, factor, source, start):
    """target[at : at + 8] += factor * source[start : start + 8]; in a loop the compiler checks first if they overlap,
    which takes longer than the sum."""

    def generate(context, builder, signature, arguments):
        into = place_of(context, builder, signature, arguments, 0, 1, FLOATS)
        loaded = builder.load(place_of(context, builder, signature, arguments, 3, 4, FLOATS), align=4)
        added = builder.fmul(all_eight(builder, arguments[2]), loaded, flags=("contract",))
        builder.store(builder.fadd(builder.load(into, align=4), added, flags=("contract",)), into, align=4)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.float32, source, types.int64), generate


# For each of the 256 ways to keep some of eight: where those that stay come from, in order.
ORDER = [[i for i in range(EIGHT) if subset >> i & 1] for subset in range(1 << EIGHT)]


# The other way round: where each of the eight that stays is among them; the others' do not matter.
RANK = [[(subset & ((1 << i) - 1)).bit_count() for i in range(EIGHT)] for subset in range(1 << EIGHT)]


def _moved(builder, keep, name, rows):
    """A function of eight numbers that takes each from where the row of a table for keep (8 bits) says."""
    row = ir.ArrayType(INT, EIGHT)
    filled = [ir.Constant(row, [INT(i) for i in order + [0] * (EIGHT - len(order))]) for order in rows]
    table = global_constant(builder.module, name, ir.Constant(ir.ArrayType(row, len(filled)), filled))
    number = builder.zext(builder.bitcast(keep, ir.IntType(EIGHT)), LONG)
    order = builder.load(builder.bitcast(builder.gep(table, [LONG(0), number]), INTS.as_pointer()), align=4)
    permute = builder.module.declare_intrinsic("llvm.x86.avx2.permd", (), ir.FunctionType(INTS, [INTS, INTS]))
    return lambda numbers: builder.call(permute, [numbers, order])


def _can_permute(context) -> bool:
    """Whether the processor moves eight numbers to any places in one instruction; compiled code is for one kind."""
    return "+avx2" in getattr(context.codegen(), "_tm_features", "").split(",")


def write_kept(context, builder, is_kept, pixels, masses, to_pixel, to_mass):
    """Write those of eight pixels and masses whose bit in kept (8 bits) is set, one after another; their number."""
    if _can_permute(context):
        together = _moved(builder, is_kept, "order_of_eight", ORDER)
        builder.store(together(pixels), to_pixel, align=4)
        builder.store(builder.bitcast(together(builder.bitcast(masses, INTS)), FLOATS), to_mass, align=4)
        return builder.zext(builder.ctpop(is_kept), LONG)
    count, keep = LONG(0), builder.bitcast(is_kept, ir.VectorType(ir.IntType(1), EIGHT))
    to_pixel, to_mass = builder.bitcast(to_pixel, INT.as_pointer()), builder.bitcast(to_mass, FLOAT.as_pointer())
    for i in range(EIGHT):
        # Written whether it stays or not; only what stays moves the end.
        builder.store(builder.extract_element(pixels, INT(i)), builder.gep(to_pixel, [count]), align=4)
        builder.store(builder.extract_element(masses, INT(i)), builder.gep(to_mass, [count]), align=4)
        count = builder.add(count, builder.zext(builder.extract_element(keep, INT(i)), LONG))
    return count


@intrinsic
def keep_eight(typing_context, pixel, mass, first, tolerance, into_pixel, into_mass, at):
    """Of the eight from `first`, write those whose mass is above the tolerance, or NaN, from `at` on; their number.

    Beyond them, up to eight places hold anything. The eight are read before anything is written.
    """

    def generate(context, builder, signature, arguments):
        ways = (context, builder, signature, arguments)
        pixels = builder.load(place_of(*ways, 0, 2, INTS), align=4)
        masses = builder.load(place_of(*ways, 1, 2, FLOATS), align=4)
        is_kept = builder.bitcast(
            builder.fcmp_unordered(">", masses, all_eight(builder, arguments[3])), ir.IntType(EIGHT)
        )
        into = place_of(*ways, 4, 6, INTS), place_of(*ways, 5, 6, FLOATS)
        return write_kept(context, builder, is_kept, pixels, masses, *into)

    arrays = (pixel, mass, types.int64, types.float32, into_pixel, into_mass, types.int64)
    return types.int64(*arrays), generate


@intrinsic
def spread_eight(typing_context, mass, first, tolerance, source, at, target):
    """The way back from `keep_eight`: what it kept of the eight from `first`, source from `at` on, to its places in
    target, with 0 in the others; their number. Up to eight of the source are read."""

    def generate(context, builder, signature, arguments):
        ways = (context, builder, signature, arguments)
        masses = builder.load(place_of(*ways, 0, 1, FLOATS), align=4)
        keep = builder.fcmp_unordered(">", masses, all_eight(builder, arguments[2]))
        into, nothing = place_of(*ways, 5, 1, FLOATS), ir.Constant(FLOATS, [0.0] * EIGHT)
        if _can_permute(context):
            loaded = builder.load(place_of(*ways, 3, 4, INTS), align=4)
            apart = builder.bitcast(_moved(builder, keep, "rank_of_eight", RANK)(loaded), FLOATS)
            builder.store(builder.select(keep, apart, nothing), into, align=4)
            return builder.zext(builder.ctpop(builder.bitcast(keep, ir.IntType(EIGHT))), LONG)
        count, spread = LONG(0), nothing
        start = builder.bitcast(place_of(*ways, 3, 4, FLOATS), FLOAT.as_pointer())
        for i in range(EIGHT):
            stays = builder.extract_element(keep, INT(i))
            number = builder.select(stays, builder.load(builder.gep(start, [count]), align=4), FLOAT(0.0))
            spread = builder.insert_element(spread, number, INT(i))
            count = builder.add(count, builder.zext(stays, LONG))
        builder.store(spread, into, align=4)
        return count

    return types.int64(mass, types.int64, types.float32, source, types.int64, target), generate
