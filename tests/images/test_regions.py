"""The algebra of regions, against sets of voxels."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.images.regions import Region

SIZE = (4, 7, 6)
WHOLE = Region.whole(SIZE)
sides = st.tuples(*(st.integers(1, 5) for _ in range(3)))


@st.composite
def regions(draw, low=0, high=0, empty=False):
    """Regions of a volume, or reaching up to so far beyond its faces."""
    ends = []
    for side in SIZE:
        first = draw(st.integers(-low, side + high - (not empty)))
        ends.append((first, draw(st.integers(first + (not empty), side + high))))
    z, y, x = ends
    return Region(*y, *x, *z)


def voxels(region):
    return set(
        product(
            range(region.front, region.back), range(region.top, region.bottom), range(region.left, region.right)
        )
    )  # fmt: skip


def box_of(some):
    """The smallest region with these voxels."""
    z, y, x = zip(*some, strict=True)
    return Region(min(y), max(y) + 1, min(x), max(x) + 1, min(z), max(z) + 1)


def test_an_image_is_a_volume_of_one_slice():
    region = Region(1, 3, 2, 6)
    assert (region.front, region.back, region.shape) == (0, 1, (1, 2, 4))
    assert Region.whole((5, 6)) == Region.whole((1, 5, 6)) == Region(0, 5, 0, 6)
    assert Region.whole(SIZE) == Region(0, 7, 0, 6, 0, 4)


@given(regions(low=3, high=3, empty=True), regions(low=3, high=3, empty=True))
def test_what_two_regions_share(a, b):
    shared = voxels(a) & voxels(b)
    assert voxels(a.clipped(b)) == shared
    assert min(a.clipped(b).shape) >= 0
    assert (a.intersection(b) is None) == (not shared)
    if shared:
        assert a.intersection(b) == box_of(shared)
    assert a.is_empty == (not voxels(a))


@given(st.lists(regions(low=2, high=2, empty=True), min_size=1, max_size=4))
def test_the_hull_is_the_smallest_region_that_holds_all(some):
    united = set().union(*map(voxels, some))
    hull = some[0].hull(*some[1:])
    if united:
        assert hull == box_of(united)
    else:
        assert hull.is_empty


@given(regions(), st.one_of(st.integers(0, 4), sides), regions())
def test_grown(region, margin, within):
    by = (margin,) * 3 if isinstance(margin, int) else margin
    near = {
        (z + dz, y + dy, x + dx)
        for z, y, x in voxels(region)
        for dz, dy, dx in ((-by[0], -by[1], -by[2]), by)
    }  # fmt: skip
    assert voxels(region.grown(margin, WHOLE)) == voxels(box_of(near)) & voxels(WHOLE)
    assert voxels(region.grown(margin, within)) == voxels(box_of(near)) & voxels(within)


@given(regions(), st.one_of(st.integers(1, 5), sides))
def test_aligned_regions_are_the_tiles_that_are_touched(region, tile):
    touched = [each for each in WHOLE.tiles(tile) if each.intersection(region)]
    assert voxels(region.aligned(tile, WHOLE)) == set().union(*map(voxels, touched))


@given(regions(low=2), st.one_of(st.integers(1, 5), sides))
def test_tiles_cut_a_region_once(region, tile):
    parts, by = region.tiles(tile), (tile,) * 3 if isinstance(tile, int) else tile
    assert sum(len(voxels(part)) for part in parts) == len(voxels(region))
    assert set().union(*map(voxels, parts)) == voxels(region)
    assert all(side <= most for part in parts for side, most in zip(part.shape, by, strict=True))
    corners = [(part.front, part.top, part.left) for part in parts]
    assert corners == sorted(corners), "slice after slice, row after row"


@given(regions().filter(lambda region: max(region.shape) > 1))
def test_halves(region):
    (first, second), axis = region.halves()
    assert voxels(first) | voxels(second) == voxels(region)
    assert not voxels(first) & voxels(second)
    assert not first.is_empty
    assert not second.is_empty
    assert region.shape[axis] == max(region.shape)
    image = np.zeros(SIZE)
    joined = np.concatenate([half.of_volume(image) for half in (first, second)], axis=axis)
    assert joined.shape == region.shape


@given(regions(), regions(low=2, high=2))
def test_within_counts_from_the_corner_of_another(region, outer):
    moved = {(z - outer.front, y - outer.top, x - outer.left) for z, y, x in voxels(region)}
    assert voxels(region.within(outer)) == moved
    assert region.within(outer).placed_in(outer) == region


@given(regions())
def test_views_are_the_voxels_of_a_region(region):
    volume = np.arange(2 * np.prod(SIZE)).reshape(2, *SIZE)
    index = np.array(sorted(voxels(region))).T
    np.testing.assert_array_equal(region.of_volume(volume).reshape(2, -1), volume[:, *index])
    assert region.of_volume(volume).base is not None, "a view"
    rows = np.unique(index[1:], axis=1)
    np.testing.assert_array_equal(region.of(volume[0, 0]).ravel(), volume[0, 0][*rows])


@given(st.sets(st.tuples(*(st.integers(0, side - 1) for side in SIZE))))
def test_around_is_the_smallest_region_of_a_mask(some):
    mask = np.zeros(SIZE, bool)
    for voxel in some:
        mask[voxel] = True
    if not some:
        assert Region.around(mask).is_empty
        assert Region.around(mask[0]).is_empty
        return
    assert Region.around(mask) == box_of(some)
    flat = mask.any(axis=0)
    assert Region.around(flat) == Region.of_pixels(*np.nonzero(flat)) == box_of({(0, y, x) for _, y, x in some})


@pytest.mark.parametrize("axis", range(3))
def test_halves_of_a_region_lie_along_its_longest_side(axis):
    shape = [3, 3, 3]
    shape[axis] = 9
    assert Region.whole(shape).halves()[1] == axis


@given(regions(low=3, high=3), regions())
def test_placed_in_is_the_inverse_of_within(a, b):
    assert a.within(b).placed_in(b) == a


@given(regions(), st.integers(1, 4))
def test_the_places_of_the_tiles_that_a_region_touches(region, side):
    rows, columns = region.tile_places(side)
    touching = {
        place
        for place in product(range(8), range(8))
        if not Region.tile_at(place, side).clipped(replace(region, front=0, back=1)).is_empty
    }
    assert set(product(rows, columns)) == touching
