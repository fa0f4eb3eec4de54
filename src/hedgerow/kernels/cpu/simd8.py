"""Vector code on eight numbers at once for the walk through soft trees, where the compiler does not find it by itself.

Each number gets the same result as it would alone, so it does not matter which pixels share a vector.
Callers guarantee room for eight wherever eight are read or written.
"""

from llvmlite import ir
from numba import types
from numba.core.cgutils import global_constant

from hedgerow.kernels.compiling import intrinsic

EIGHT = 8
BYTE, INT, LONG, FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
INTS, FLOATS = ir.VectorType(INT, EIGHT), ir.VectorType(FLOAT, EIGHT)

# A product and the sum that uses it may be rounded once, as in `multiply_add_part`.
ONCE = ("contract",)
# The polynomial of `blocks.exp`, 2^x between -1/2 and 1/2, the highest power first.
POWERS = (1.3264726149e-3, 9.6715129912e-3, 5.5507335812e-2, 2.4022242427e-1, 6.9314700365e-1, 1.0)

# For each of the 256 subsets of eight numbers: the positions of its members, in order.
ORDER = [[i for i in range(EIGHT) if subset >> i & 1] for subset in range(1 << EIGHT)]
# The inverse: the rank of each number among the members; the ranks of the others do not matter.
RANK = [[(subset & ((1 << i) - 1)).bit_count() for i in range(EIGHT)] for subset in range(1 << EIGHT)]


class _Eight:
    """Emits the code of one intrinsic; arrays, indices and numbers are given by their position among its arguments."""

    def __init__(self, context, builder, signature, arguments):
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments

    def place(self, array, index, kind=FLOATS):
        """Pointer to the eight numbers of an array that begin at an index."""
        held = self.context.make_array(self.signature.args[array])(self.context, self.builder, self.arguments[array])
        return self.builder.bitcast(self.builder.gep(held.data, [self.arguments[index]]), kind.as_pointer())

    def load(self, array, index, kind=FLOATS):
        return self.builder.load(self.place(array, index, kind), align=4)

    def store(self, numbers, place):
        self.builder.store(numbers, place, align=4)

    def all(self, number):
        """A number, eight times."""
        undefined = ir.Constant(FLOATS, ir.Undefined)
        first = self.builder.insert_element(undefined, self.arguments[number], INT(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(INTS, [0] * EIGHT))

    def are_kept(self, masses, tolerance):
        """Which of eight masses are above the tolerance, or NaN."""
        return self.builder.fcmp_unordered(">", masses, self.all(tolerance))

    def moved(self, keep, name, rows):
        """A function that takes each of eight numbers from the position in the table's row for keep (8 bits)."""
        builder, row = self.builder, ir.ArrayType(INT, EIGHT)
        filled = [ir.Constant(row, [INT(i) for i in order + [0] * (EIGHT - len(order))]) for order in rows]
        table = global_constant(builder.module, name, ir.Constant(ir.ArrayType(row, len(filled)), filled))
        number = builder.zext(builder.bitcast(keep, BYTE), LONG)
        order = builder.load(builder.bitcast(builder.gep(table, [LONG(0), number]), INTS.as_pointer()), align=4)
        permute = builder.module.declare_intrinsic("llvm.x86.avx2.permd", (), ir.FunctionType(INTS, [INTS, INTS]))
        return lambda numbers: builder.call(permute, [numbers, order])

    def write_kept(self, is_kept, pixels, masses, to_pixel, to_mass):
        """Write those of eight pixels and masses whose bit in is_kept (8 bits) is set, without gaps; their number."""
        builder = self.builder
        if _can_permute(self.context):
            together = self.moved(is_kept, "order_of_eight", ORDER)
            self.store(together(pixels), to_pixel)
            self.store(builder.bitcast(together(builder.bitcast(masses, INTS)), FLOATS), to_mass)
            return builder.zext(builder.ctpop(is_kept), LONG)
        count, keep = LONG(0), builder.bitcast(is_kept, ir.VectorType(ir.IntType(1), EIGHT))
        to_pixel, to_mass = builder.bitcast(to_pixel, INT.as_pointer()), builder.bitcast(to_mass, FLOAT.as_pointer())
        for i in range(EIGHT):
            # All are written, but only those that are kept move the end.
            self.store(builder.extract_element(pixels, INT(i)), builder.gep(to_pixel, [count]))
            self.store(builder.extract_element(masses, INT(i)), builder.gep(to_mass, [count]))
            count = builder.add(count, builder.zext(builder.extract_element(keep, INT(i)), LONG))
        return count

    def each(self, name, numbers):
        """An operation of LLVM on each of eight numbers."""
        kind = ir.FunctionType(FLOATS, [FLOATS])
        operation = self.builder.module.declare_intrinsic(f"llvm.{name}.v{EIGHT}f32", (), kind)
        return self.builder.call(operation, [numbers])

    def exp(self, numbers):
        """`blocks.exp` of eight numbers that are not positive."""
        builder = self.builder
        x = builder.fmul(numbers, _constant(1.442695041))
        is_low = builder.fcmp_ordered("<", x, _constant(-125))  # NaN stays NaN
        x = builder.select(is_low, _constant(-125), x)
        power = self.each("floor", builder.fadd(x, _constant(0.5)))
        x = builder.fsub(x, power)
        tail = _constant(POWERS[0])
        for factor in POWERS[1:]:
            tail = builder.fadd(builder.fmul(tail, x, flags=ONCE), _constant(factor), flags=ONCE)
        whole = builder.shl(builder.fptosi(power, INTS), ir.Constant(INTS, [23] * EIGHT))
        return builder.bitcast(builder.add(builder.bitcast(tail, INTS), whole), FLOATS)

    def branched(self, sharpness, threshold, masses, values):
        """The parts of eight masses that go right, and those that go left."""
        builder = self.builder
        z = builder.fmul(self.all(sharpness), builder.fsub(values, self.all(threshold)))
        away = self.exp(builder.fneg(self.each("fabs", z)))
        likely = builder.fdiv(_constant(1), builder.fadd(_constant(1), away))
        unlikely = builder.fmul(away, likely)
        is_right = builder.fcmp_ordered(">=", z, _constant(0))
        to_right, to_left = builder.select(is_right, likely, unlikely), builder.select(is_right, unlikely, likely)
        return builder.fmul(masses, to_right), builder.fmul(masses, to_left)


def _constant(number: float) -> ir.Constant:
    return ir.Constant(FLOATS, [FLOAT(number)] * EIGHT)


def _can_permute(context) -> bool:
    """Whether the processor can rearrange eight numbers in one instruction; code is compiled for one kind of it."""
    return "+avx2" in getattr(context.codegen(), "_tm_features", "").split(",")


@intrinsic
def add_scaled_eight(typing_context, target, at, factor, source, start):
    """target[at : at + 8] += factor * source[start : start + 8].

    In a loop the compiler would first check whether they overlap, which takes longer than the sum.
    """

    def generate(*given):
        eight = _Eight(*given)
        into, builder = eight.place(0, 1), eight.builder
        added = builder.fmul(eight.all(2), eight.load(3, 4), flags=ONCE)
        eight.store(builder.fadd(builder.load(into, align=4), added, flags=ONCE), into)
        return eight.context.get_dummy_value()

    return types.void(target, types.int64, types.float32, source, types.int64), generate


@intrinsic
def keep_eight(typing_context, pixel, mass, first, tolerance, into_pixel, into_mass, at):
    """Of the eight from `first`, write those whose mass is above the tolerance, or NaN, from `at` on; their number.

    Up to eight places behind them are overwritten. All eight are read before anything is written.
    """

    def generate(*given):
        eight = _Eight(*given)
        pixels, masses = eight.load(0, 2, INTS), eight.load(1, 2)
        is_kept = eight.builder.bitcast(eight.are_kept(masses, 3), BYTE)
        return eight.write_kept(is_kept, pixels, masses, eight.place(4, 6, INTS), eight.place(5, 6))

    arrays = (pixel, mass, types.int64, types.float32, into_pixel, into_mass, types.int64)
    return types.int64(*arrays), generate


@intrinsic
def spread_eight(typing_context, mass, first, tolerance, source, at, target):
    """The inverse of `keep_eight`: put what it kept of the eight from `first`, now in source from `at` on, back in its
    places in target, and 0 in the others; returns how many it kept. Up to eight numbers of source are read."""

    def generate(*given):
        eight = _Eight(*given)
        builder, keep = eight.builder, eight.are_kept(eight.load(0, 1), 2)
        into, zeros = eight.place(5, 1), _constant(0.0)
        if _can_permute(eight.context):
            apart = builder.bitcast(eight.moved(keep, "rank_of_eight", RANK)(eight.load(3, 4, INTS)), FLOATS)
            eight.store(builder.select(keep, apart, zeros), into)
            return builder.zext(builder.ctpop(builder.bitcast(keep, BYTE)), LONG)
        count, spread = LONG(0), zeros
        start = builder.bitcast(eight.place(3, 4), FLOAT.as_pointer())
        for i in range(EIGHT):
            stays = builder.extract_element(keep, INT(i))
            number = builder.select(stays, builder.load(builder.gep(start, [count]), align=4), FLOAT(0.0))
            spread = builder.insert_element(spread, number, INT(i))
            count = builder.add(count, builder.zext(stays, LONG))
        eight.store(spread, into)
        return count

    return types.int64(mass, types.int64, types.float32, source, types.int64, target), generate


@intrinsic
def branch_eight(typing_context, mass, value, right, first, sharpness, threshold):
    """Replace the eight values from `first` by the parts of their masses that go left, and fill `right` likewise."""

    def generate(*given):
        eight = _Eight(*given)
        into_left, into_right = eight.place(1, 3), eight.place(2, 3)
        masses = eight.load(0, 3)
        to_right, to_left = eight.branched(4, 5, masses, eight.builder.load(into_left, align=4))
        eight.store(to_right, into_right)
        eight.store(to_left, into_left)
        return eight.context.get_dummy_value()

    return types.void(mass, value, right, types.int64, types.float32, types.float32), generate


@intrinsic
def share_eight(
    typing_context, pixel, mass, value, first, among, sharpness, threshold, tolerance, into_pixel, into_mass, at,
    left_at,
):  # fmt: skip
    """Divide the eight of a list from `first` between the two children: (how many go right, how many left).

    among: bits of those that count; into_pixel, into_mass: the right child's list, which continues at `at`; the left
    child's list replaces this one and continues at `left_at`
    """

    def generate(*given):
        eight = _Eight(*given)
        pixels, masses, values = eight.load(0, 3, INTS), eight.load(1, 3), eight.load(2, 3)
        counts, among_bits = [], eight.builder.trunc(eight.arguments[4], BYTE)
        sides = eight.branched(5, 6, masses, values)
        for side, (p, m, start) in zip(sides, ((8, 9, 10), (0, 1, 11)), strict=True):
            is_kept = eight.builder.and_(eight.builder.bitcast(eight.are_kept(side, 7), BYTE), among_bits)
            counts.append(eight.write_kept(is_kept, pixels, side, eight.place(p, start, INTS), eight.place(m, start)))
        return eight.context.make_tuple(eight.builder, eight.signature.return_type, counts)

    lists, number = (pixel, mass, value), types.float32
    given = (*lists, types.int64, types.int64, number, number, number, into_pixel, into_mass, types.int64, types.int64)
    return types.UniTuple(types.int64, 2)(*given), generate


@intrinsic
def weigh_eight(typing_context, out, first, weight, values, at, is_more):
    """out[first : first + 8] = weight * values[at : at + 8], or += if is_more; each product is rounded."""

    def generate(*given):
        eight = _Eight(*given)
        builder, into = eight.builder, eight.place(0, 1)
        product = builder.fmul(eight.all(2), eight.load(3, 4))
        together = builder.fadd(builder.load(into, align=4), product)
        eight.store(builder.select(eight.arguments[5], together, product), into)
        return eight.context.get_dummy_value()

    return types.void(out, types.int64, types.float32, values, types.int64, types.boolean), generate


@intrinsic
def add_two_eight(typing_context, target, at, mass, other_mass, tolerance, source, start, other_start):
    """target[at : at + 8] += mass * source[start : start + 8], then the same with the other mass and start.

    A mass that `keep_eight` would drop adds nothing.
    """

    def generate(*given):
        eight = _Eight(*given)
        builder, into = eight.builder, eight.place(0, 1)
        total = builder.load(into, align=4)
        for m, start in ((2, 6), (3, 7)):
            factor = eight.all(m)
            more = builder.fadd(total, builder.fmul(factor, eight.load(5, start), flags=ONCE), flags=ONCE)
            # Selected, not multiplied by 0, since 0 times an infinite vote would be NaN.
            total = builder.select(eight.are_kept(factor, 4), more, total)
        eight.store(total, into)
        return eight.context.get_dummy_value()

    number, place = types.float32, types.int64
    return types.void(target, place, number, number, number, source, place, place), generate
