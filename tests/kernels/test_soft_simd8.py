"""A soft split for eight pixels at once gives, to the last bit, what it gives pixel by pixel."""

import numpy as np
import pytest
from numba import njit

from hedgerow.kernels.compiling import multiply_add_part
from hedgerow.kernels.cpu import simd8
from hedgerow.kernels.cpu.blocks import exp
from hedgerow.kernels.cpu.simd8 import EIGHT
from hedgerow.kernels.cpu.soft_walk import BLOCK, COLUMNS, branch, fixed_values

TOLERANCE = np.float32(0.001)
SHARPNESS, THRESHOLD = np.float32(4), np.float32(0.25)


@multiply_add_part
def one_by_one(sharpness, threshold, mass, value, right, left):
    """What `branch` does, as it is written down."""
    for e in range(len(mass)):
        z = sharpness * (value[e] - threshold)
        away = exp(-abs(z))
        likely = np.float32(1) / (np.float32(1) + away)
        unlikely = away * likely
        right[e] = mass[e] * (likely if z >= 0 else unlikely)
        left[e] = mass[e] * (unlikely if z >= 0 else likely)


def drawn(n):
    """Masses and values (n,), some of them far from the threshold or no numbers."""
    rng = np.random.default_rng(n)
    mass, value = rng.random(n).astype(np.float32), rng.normal(0.25, 2, n).astype(np.float32)
    value[::7] *= 100
    value[3::11] = np.nan
    value[5::13] = np.inf
    value[6::17] = THRESHOLD
    return mass, value


def shared(mass, value):
    """(right, left) by the definition."""
    right, left = np.empty_like(mass), np.empty_like(mass)
    one_by_one(SHARPNESS, THRESHOLD, mass, value, right, left)
    return right, left


def test_branching_has_the_bits_of_its_definition():
    mass, value = drawn(800)
    expected_right, expected_left = shared(mass, value)
    right = np.empty_like(mass)
    branch(SHARPNESS, THRESHOLD, len(mass), mass, value, right)
    np.testing.assert_array_equal(right, expected_right)
    np.testing.assert_array_equal(value, expected_left)


@pytest.mark.parametrize("can_permute", [False, True])
@pytest.mark.parametrize("n", [1, 7, 8, 13, 64])
def test_sharing_out_keeps_those_above_the_tolerance_in_order(n, can_permute, monkeypatch):
    if not can_permute:
        monkeypatch.setattr(simd8, "_can_permute", lambda context: False)

    @njit
    def share(pixel, mass, value, n, into_pixel, into_mass):
        n_right, n_left = 0, 0
        for e in range(0, n, EIGHT):
            among = (1 << min(n - e, EIGHT)) - 1
            more = simd8.share_eight(
                pixel, mass, value, e, among, SHARPNESS, THRESHOLD, TOLERANCE, into_pixel, into_mass, n_right, n_left
            )  # fmt: skip
            n_right += more[0]
            n_left += more[1]
        return n_right, n_left

    mass, value = drawn(n + EIGHT)  # what lies beyond the list must not count, whatever it is
    pixel = np.arange(100, 100 + len(mass), dtype=np.int32)
    right, left = (side[:n] for side in shared(mass, value))
    to_right, to_left = ~(right <= TOLERANCE), ~(left <= TOLERANCE)
    expected = [(side[kept], pixel[:n][kept]) for side, kept in ((right, to_right), (left, to_left))]
    into_pixel, into_mass = np.zeros(len(mass), np.int32), np.zeros(len(mass), np.float32)
    n_right, n_left = share(pixel, mass, value, n, into_pixel, into_mass)
    assert (n_right, n_left) == (to_right.sum(), to_left.sum())
    np.testing.assert_array_equal(into_mass[:n_right], expected[0][0])
    np.testing.assert_array_equal(into_pixel[:n_right], expected[0][1])
    np.testing.assert_array_equal(mass[:n_left], expected[1][0])
    np.testing.assert_array_equal(pixel[:n_left], expected[1][1])


@pytest.mark.parametrize("masses", [(0.5, 0.25), (0.5, 0.001), (0.0005, 0.75), (0.0, 0.0), (np.nan, 0.5)])
def test_two_leaves_at_once_are_one_after_the_other(masses):
    @njit
    def at_once(target, right, left, votes):
        simd8.add_two_eight(target, 3, right, left, TOLERANCE, votes, 8, 16)

    @njit
    def in_turn(target, right, left, votes):
        if not right <= TOLERANCE:
            simd8.add_scaled_eight(target, 3, right, votes, 8)
        if not left <= TOLERANCE:
            simd8.add_scaled_eight(target, 3, left, votes, 16)

    rng = np.random.default_rng(0)
    votes, total = rng.normal(size=24).astype(np.float32), rng.random(16).astype(np.float32)
    votes[9], votes[18] = np.inf, -np.inf  # of no effect where a leaf is not reached
    expected = total.copy()
    at_once(total, *map(np.float32, masses), votes)
    in_turn(expected, *map(np.float32, masses), votes)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("part", [0.02, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("n_probes", [1, 3])
def test_neighbours_read_together_what_each_reads_alone(part, n_probes):
    rng = np.random.default_rng(n_probes)
    stride, corner = 200, (5, 9)
    values = rng.normal(size=3 * 64 * stride).astype(np.float32)
    pixel = np.flatnonzero(rng.random(BLOCK) < part).astype(np.int32)
    place = rng.integers(0, 20 * stride, n_probes)
    weight = rng.normal(size=n_probes).astype(np.float32)
    out = np.full(BLOCK + EIGHT, np.nan, np.float32)
    fixed_values(values, stride, place, corner, weight, len(pixel), pixel, out)
    row, column = pixel // COLUMNS + corner[0], pixel % COLUMNS + corner[1]
    expected = weight[0] * values[place[0] + row * stride + column]
    for j in range(1, n_probes):
        expected += weight[j] * values[place[j] + row * stride + column]
    np.testing.assert_array_equal(out[: len(pixel)], expected)
    assert np.isnan(out[len(pixel) :]).all(), "nothing is written beyond the list"
