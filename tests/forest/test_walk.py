"""Forests as arrays, and walking them: the kernels against the plain definition."""

from dataclasses import replace

import numpy as np
import pytest

from hedgerow import threads
from hedgerow.errors import InputError, ModelError
from hedgerow.forest import walk
from hedgerow.forest.level_input import LevelInput, whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.plane_ops import box_averaged
from hedgerow.kernels.definition import forest as plain
from hedgerow.kernels.definition.outputs import normalise
from helpers.forests import random_forest
from helpers.leaf_paths import leaf_paths

SIZES = [(1, 1, 1), (1, 1, 7), (1, 13, 1), (1, 9, 14), (5, 3, 4), (2, 7, 1), (9, 1, 1)]
IMAGES = [size for size in SIZES if size[0] == 1]


def channels_of(rng, shape, n=4):
    # Few different values, so that ties with thresholds and between pixels are common.
    return (rng.integers(-4, 5, (n, *shape)) / 4).astype(np.float32)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_offset_features_equal_the_definition(shape, seed):
    """Those of a volume reach beyond its faces."""
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_classes=1 + seed, reach_z=3)
    forest = replace(forest, threshold=np.round(forest.threshold * 4) / 4)
    channels = channels_of(rng, shape)
    np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), plain.forest_proba(forest, channels))


@pytest.mark.parametrize("shape", SIZES)
def test_sums_of_probes_equal_the_definition(shape):
    rng = np.random.default_rng(12)
    forest, channels = random_forest(rng, n_probes=3, reach_z=3), channels_of(rng, shape)
    np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), plain.forest_proba(forest, channels))


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("with_outside", [False, True])
@pytest.mark.parametrize("with_reach", [False, True])
def test_sums_of_probes_in_depth_images_equal_the_definition(shape, with_reach, with_outside):
    rng = np.random.default_rng(11)
    forest = random_forest(rng, n_probes=3)
    context = {
        "stretch": rng.uniform(0.2, 2.5, shape[1:]).astype(np.float32) if with_reach else None,
        "outside": rng.standard_normal(4).astype(np.float32) if with_outside else None,
    }
    channels = channels_of(rng, shape)
    np.testing.assert_array_equal(
        run_forest(forest, whole_input(channels, **context)), plain.forest_proba(forest, channels, **context)
    )


def test_channels_are_copied_only_where_they_must_be_continued():
    rng = np.random.default_rng(5)
    forest = random_forest(rng)
    channels, reach = channels_of(rng, (1, 40, 50)), forest.reach
    whole = plain.forest_proba(forest, channels)
    for inner, is_read_in_place in (
        (Region(reach, 40 - reach, reach, 50 - reach), True),
        (Region(0, 20, 9, 30), False),
    ):
        level_input = LevelInput(channels, inner)
        planes = walk.fixed_places(forest, level_input).planes
        assert np.shares_memory(planes, channels) == is_read_in_place
        np.testing.assert_array_equal(run_forest(forest, level_input), inner.of_volume(whole))


@pytest.mark.parametrize("radius", [0, 1, 3, 6])
@pytest.mark.parametrize("outside", [None, 2.5])
def test_box_average(radius, outside):
    """In the plane: no slice knows of the others."""
    volume = np.random.default_rng(0).standard_normal((2, 7, 9)).astype(np.float32)
    expected = [plain.box_mean(volume, place, radius, outside) for place in np.ndindex(*volume.shape)]
    np.testing.assert_allclose(box_averaged(volume, radius, outside).ravel(), expected, atol=2e-6)


@pytest.mark.parametrize("n_probes", [1, 2])
@pytest.mark.parametrize("size", [(1, 12, 10), (3, 5, 4)])
def test_windows_at_an_offset(size, n_probes):
    rng = np.random.default_rng(8)
    forest = random_forest(rng, radii=(0, 1, 3), n_probes=n_probes, reach_z=2)
    channels = rng.standard_normal((4, *size)).astype(np.float32)
    np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), plain.forest_proba(forest, channels))


@pytest.mark.parametrize("n_probes", [1, 2])
@pytest.mark.parametrize("depth", [1, 7])
def test_part_of_an_image_equals_the_whole(depth, n_probes):
    rng = np.random.default_rng(5)
    forest = random_forest(rng, radii=(0, 2), n_probes=n_probes, reach_z=2)
    channels = rng.standard_normal((4, depth, 20, 25)).astype(np.float32)
    image = Region.whole(channels.shape[1:])
    whole = run_forest(forest, whole_input(channels))
    for inner in (Region(0, 20, 9, 10), Region(3, 16, 0, 25), Region(19, 20, 24, 25), Region(4, 9, 3, 8, 3, 4)):
        inner = replace(inner, front=max(depth - 2, 0), back=depth) if inner.front == 0 or depth == 1 else inner
        np.testing.assert_array_equal(run_forest(forest, LevelInput(channels, inner)), inner.of_volume(whole))
        seen = inner.grown((forest.reach_z, forest.reach, forest.reach), image)
        cut = run_forest(forest, LevelInput(seen.of_volume(channels), inner.within(seen)))
        np.testing.assert_array_equal(cut, inner.of_volume(whole))


@pytest.mark.parametrize("n_probes", [1, 2])
@pytest.mark.parametrize("radii", [(0,), (0, 2)])
def test_without_offsets_in_z_a_volume_is_its_slices_one_by_one(radii, n_probes):
    rng = np.random.default_rng(6)
    forest = random_forest(rng, radii=radii, n_probes=n_probes)
    channels = channels_of(rng, (5, 9, 11))
    proba, leaves = run_forest(forest, whole_input(channels)), walk.reached_leaves(forest, whole_input(channels))
    for z in range(5):
        image = whole_input(channels[:, z])
        np.testing.assert_array_equal(proba[:, z : z + 1], run_forest(forest, image))
        np.testing.assert_array_equal(leaves[:, z : z + 1], walk.reached_leaves(forest, image))


@pytest.mark.parametrize("context", ["stretch", "outside"])
def test_depth_images_have_one_slice(context):
    given = {"stretch": np.ones((4, 5), np.float32), "outside": np.zeros(4, np.float32)}[context]
    with pytest.raises(InputError, match=r"^depth features are for images, and this is a volume of 3 slices; .*\.$"):
        whole_input(np.zeros((4, 3, 4, 5), np.float32), **{context: given})


@pytest.mark.parametrize("shape", [(1, 23, 9), (1, 5, 40), (11, 6, 6)])
@pytest.mark.parametrize("reach", [0, 4])
def test_work_too_large_for_32_bits_is_done_in_halves(monkeypatch, shape, reach):
    rng = np.random.default_rng(7)
    forest = random_forest(rng, reach=reach, reach_z=min(reach, 1))
    channels = rng.standard_normal((4, *shape)).astype(np.float32)
    whole = run_forest(forest, whole_input(channels))
    calls = []
    true_halves = Region.halves
    monkeypatch.setattr(Region, "halves", lambda region: calls.append(region) or true_halves(region))
    monkeypatch.setattr(walk, "MAX_PLACES", 4 * (6 + 2 * reach) ** 2 * min(shape[0], 4))
    np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), whole)
    assert len(calls) > 2


@pytest.mark.parametrize("n_probes", [1, 2])
@pytest.mark.parametrize("size", [(1, 33, 700), (3, 11, 70), (40, 3, 7)])
def test_threads_do_not_change_the_result(size, n_probes):
    rng = np.random.default_rng(6)
    forest = random_forest(rng, n_trees=5, n_probes=n_probes, reach_z=1)
    channels = rng.standard_normal((4, *size)).astype(np.float32)
    with threads.threads(1):
        one = run_forest(forest, whole_input(channels))
    with threads.threads(4):
        np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), one)


def test_leaf_membership_follows_the_paths():
    """A pixel is in leaf l iff it takes the side of every split on P(l) (the paper's first equation)."""
    rng = np.random.default_rng(4)
    forest = random_forest(rng, n_trees=2)
    paths = leaf_paths(forest)
    channels = channels_of(rng, (1, 5, 6))
    for place in np.ndindex(1, 5, 6):
        reached = {plain.leaf_of(forest, tree, channels, place) for tree in range(2)}
        for leaf in range(forest.n_leaves):
            steps = range(paths.start[leaf], paths.start[leaf + 1])
            member = all(
                (plain.split_value(forest, paths.node[s], channels, place) >= forest.threshold[paths.node[s]])
                == (paths.sign[s] > 0)
                for s in steps
            )
            assert member == (leaf in reached)


def test_select_keeps_the_trees():
    rng = np.random.default_rng(9)
    forest = random_forest(rng, n_trees=5)
    channels = channels_of(rng, (1, 6, 7))
    part = forest.select(np.array([1, 4]))
    part.validate()
    summed = np.zeros((3, 1, 6, 7), np.float32)
    for place in np.ndindex(1, 6, 7):
        for tree in (1, 4):
            summed[:, *place] += forest.votes[plain.leaf_of(forest, tree, channels, place)]
    np.testing.assert_allclose(run_forest(part, whole_input(channels)), normalise(summed), rtol=1e-6)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.3e38])
def test_a_pixel_without_a_sensible_value_reaches_a_leaf_of_its_tree(value):
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=4)
    channels = channels_of(rng, (1, 8, 9))
    channels[..., :2, :2] = value
    np.testing.assert_array_equal(run_forest(forest, whole_input(channels)), plain.forest_proba(forest, channels))


def test_no_votes_at_all_is_uniform():
    forest = random_forest(np.random.default_rng(0))
    forest = replace(forest, votes=np.zeros_like(forest.votes))
    proba = run_forest(forest, whole_input(np.zeros((4, 3, 3), np.float32)))
    np.testing.assert_array_equal(proba, np.float32(1 / 3))
    np.testing.assert_array_equal(normalise(np.zeros((3, 2, 2), np.float32)), np.float32(1 / 3))


@pytest.mark.parametrize(
    ("field", "index", "value"),
    [
        ("left_child", 0, 0),
        ("left_child", 0, 10**6),
        ("left_child", 1, 1),
        ("threshold", 0, np.nan),
        ("channel", (0, 0), 4),
        ("channel", (0, 0), -1),
        ("offset", (0, 0, 0), np.inf),
        ("radius", (0, 0), -1),
        ("votes", (0, 0), np.inf),
        ("leaf_index", -1, 10**6),
        ("root", 1, 1),
    ],
)
def test_validation_refuses_what_cannot_be_walked(field, index, value):
    forest = random_forest(np.random.default_rng(2), leaf_chance=0)
    forest.validate()
    array = getattr(forest, field).copy()
    array[index] = value
    with pytest.raises(ModelError):
        replace(forest, **{field: array}).validate()


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("radii", [(0,), (0, 2)])
def test_leaves_of_single_probes_are_those_of_the_definition(shape, radii, monkeypatch):
    rng = np.random.default_rng(3)
    forest, channels = random_forest(rng, radii=radii, max_depth=6, reach_z=2), channels_of(rng, shape)
    level_input = whole_input(channels)
    assert walk._is_single(forest, level_input)
    leaves = walk.reached_leaves(forest, level_input)
    monkeypatch.setattr(walk, "_is_single", lambda forest, level_input: False)
    np.testing.assert_array_equal(leaves, walk.reached_leaves(forest, level_input))
    if radii == (0,):
        for tree, *place in np.ndindex(*leaves.shape):
            leaf = plain.leaf_of(forest, tree, channels, place)
            assert forest.leaf_index[np.flatnonzero(~forest.is_split)[leaf]] == leaves[tree, *place]
