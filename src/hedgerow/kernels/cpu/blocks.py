"""The block of pixels that every inner loop of the network's kernels runs over, and arithmetic on it."""

import numpy as np
from llvmlite import ir
from numba import types

from hedgerow.kernels.compiling import intrinsic, kernel_part, multiply_add_part

ROWS, COLUMNS = 8, 16
BLOCK = ROWS * COLUMNS
WIDTH = np.uint64(COLUMNS)  # Numba checks signed indices for counting from the end, unsigned ones not
ONE, ZERO = np.float32(1), np.float32(0)


@intrinsic
def as_float(typing_context, bits):
    """The float32 that has these 32 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def as_bits(typing_context, number):
    """The 32 bits of a float32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _prefetch(typing_context, array, at):
    """Request the cache line of array[at] without waiting for it."""

    def generate(context, builder, signature, arguments):
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(held.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        signature_of = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), signature_of)
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@kernel_part
def prefetch_block(values, at, stride):
    """Prefetch a block of values, whose first pixel's value is at `at`: the first and last pixel of each row."""
    for r in range(ROWS):
        _prefetch(values, at + r * stride)
        _prefetch(values, at + r * stride + COLUMNS - 1)


@multiply_add_part
def exp(x):
    """exp of a float32 that is not positive, with a relative error of 3e-7, without branches so that loops vectorise.

    Its argument is itself rounded to 24 bits, so converting it to a power of two loses nothing that matters.
    """
    x *= np.float32(1.442695041)
    x = np.float32(-125) if x < np.float32(-125) else x  # NaN stays NaN
    power = np.floor(x + np.float32(0.5))
    x -= power
    # 2^x between -1/2 and 1/2, by the polynomial of this degree with the smallest relative error, 1e-7.
    tail = np.float32(1.3264726149e-3)
    tail = tail * x + np.float32(9.6715129912e-3)
    tail = tail * x + np.float32(5.5507335812e-2)
    tail = tail * x + np.float32(2.4022242427e-1)
    tail = tail * x + np.float32(6.9314700365e-1)
    tail = tail * x + ONE
    return as_float(np.int32(as_bits(tail) + (np.int32(power) << np.int32(23))))


@multiply_add_part
def mix_four(aa, ab, ac, ad, ba, bb, bc, bd, ca, cb, cc, cd, da, db, dc, dd, source, target):
    """Four rows of target (4*BLOCK,) += a 4 x 4 matrix times four rows of source (4*BLOCK,), column after column.

    The rows lie one behind the other in one array, so the compiler sees that they do not overlap.
    """
    for p in range(BLOCK):
        a, b, c, d = source[p], source[p + BLOCK], source[p + 2 * BLOCK], source[p + 3 * BLOCK]
        target[p] = (((target[p] + aa * a) + ab * b) + ac * c) + ad * d
        target[p + BLOCK] = (((target[p + BLOCK] + ba * a) + bb * b) + bc * c) + bd * d
        target[p + 2 * BLOCK] = (((target[p + 2 * BLOCK] + ca * a) + cb * b) + cc * c) + cd * d
        target[p + 3 * BLOCK] = (((target[p + 3 * BLOCK] + da * a) + db * b) + dc * c) + dd * d


@multiply_add_part
def mix_one(a, b, c, d, source, target):
    """target (BLOCK,) += a row of four weights times four rows of source (4*BLOCK,)."""
    for p in range(BLOCK):
        mixed = ((target[p] + a * source[p]) + b * source[p + BLOCK]) + c * source[p + 2 * BLOCK]
        target[p] = mixed + d * source[p + 3 * BLOCK]


@multiply_add_part
def add_scaled(weight, source, target):
    """target (BLOCK,) += weight times source (BLOCK,)."""
    for p in range(BLOCK):
        target[p] += weight * source[p]


@kernel_part
def copy_row(source, target):
    for p in range(BLOCK):
        target[p] = source[p]


@kernel_part
def invert(mass):
    """Replace mass (BLOCK,) by its inverse; it stays 0 where every leaf was dropped."""
    for p in range(BLOCK):
        mass[p] = ONE / mass[p] if mass[p] != 0 else ZERO
