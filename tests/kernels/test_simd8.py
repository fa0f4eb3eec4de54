"""Eight numbers at once do what eight numbers one after another do, with and without the processor's instruction."""

import numpy as np
import pytest
from numba import njit

from hedgerow.kernels.cpu import simd8
from hedgerow.kernels.cpu.simd8 import EIGHT

TOLERANCE = np.float32(0.25)


@pytest.fixture(params=["any processor", "this processor"])
def keep(request, monkeypatch):
    """`keep_eight` for Python, compiled anew."""
    if request.param == "any processor":
        monkeypatch.setattr(simd8, "_can_permute", lambda context: False)

    @njit
    def compiled(pixel, mass, first, tolerance, into_pixel, into_mass, at):
        return simd8.keep_eight(pixel, mass, first, tolerance, into_pixel, into_mass, at)

    return compiled


@pytest.mark.parametrize("chosen", [0, 1, 0b10000000, 0b10110, 0b11111110, 255, *range(7, 250, 29)])
def test_those_above_the_tolerance_are_kept_in_order(keep, chosen):
    rng = np.random.default_rng(chosen)
    is_kept = np.array([chosen >> i & 1 for i in range(EIGHT)], bool)
    pixel = rng.permutation(1000)[:12].astype(np.int32)
    mass = np.zeros(12, np.float32)
    mass[3:11] = np.where(is_kept, rng.uniform(0.3, 1, EIGHT), rng.uniform(0, 0.2, EIGHT))
    into_pixel, into_mass = np.full(20, -1, np.int32), np.full(20, -1, np.float32)
    n = keep(pixel, mass, 3, TOLERANCE, into_pixel, into_mass, 5)
    assert n == is_kept.sum()
    assert into_pixel[5 : 5 + n].tolist() == pixel[3:11][is_kept].tolist()
    assert into_mass[5 : 5 + n].tolist() == mass[3:11][is_kept].tolist()
    for into in (into_pixel, into_mass):
        assert (np.delete(into, slice(5, 5 + EIGHT)) == -1).all(), "only eight places are written"


def test_the_tolerance_itself_goes_and_nan_stays(keep):
    mass = np.array([TOLERANCE, np.nan, np.inf, -np.inf, np.nextafter(TOLERANCE, np.float32(1)), 0, 1, -1], np.float32)
    into_pixel, into_mass = np.zeros(8, np.int32), np.zeros(8, np.float32)
    n = keep(np.arange(8, dtype=np.int32), mass, 0, TOLERANCE, into_pixel, into_mass, 0)
    assert into_pixel[:n].tolist() == [1, 2, 4, 6]


def test_a_list_can_be_packed_where_it_lies(keep):
    rng = np.random.default_rng(0)
    pixel, mass = np.arange(64, dtype=np.int32), rng.random(64).astype(np.float32)
    expected, n = np.flatnonzero(mass > TOLERANCE), 0
    for first in range(0, 64, EIGHT):
        n += keep(pixel, mass, first, TOLERANCE, pixel, mass, n)
    assert pixel[:n].tolist() == expected.tolist()


def test_a_multiple_is_added_to_eight_places():
    @njit
    def add(target, at, factor, source, start):
        simd8.add_scaled_eight(target, at, factor, source, start)

    target, source = np.arange(20, dtype=np.float32), np.arange(100, 130, dtype=np.float32)
    add(target, 4, np.float32(0.5), source, 9)
    expected = np.arange(20, dtype=np.float32)
    expected[4:12] += source[9:17] / 2
    assert target.tolist() == expected.tolist()


@pytest.mark.parametrize("can_permute", [False, True])
def test_what_was_kept_goes_back_to_its_places(can_permute, monkeypatch):
    if not can_permute:
        monkeypatch.setattr(simd8, "_can_permute", lambda context: False)

    @njit
    def spread(mass, first, tolerance, source, at, target):
        return simd8.spread_eight(mass, first, tolerance, source, at, target)

    rng = np.random.default_rng(0)
    for _ in range(50):
        mass = rng.random(12).astype(np.float32)
        mass[rng.random(12) < 0.1] = np.nan
        is_kept = ~(mass[3:11] <= TOLERANCE)
        source, target = np.arange(1, 21, dtype=np.float32), np.full(14, -1, np.float32)
        assert spread(mass, 3, TOLERANCE, source, 5, target) == is_kept.sum()
        expected = np.zeros(EIGHT)
        expected[is_kept] = source[5 : 5 + is_kept.sum()]
        assert target[3:11].tolist() == expected.tolist()
        assert (np.delete(target, slice(3, 11)) == -1).all(), "only eight places are written"
