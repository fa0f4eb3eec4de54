"""Growing: the split search against brute force over every split, and the pieces it is made of."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgerow as hr
from hedgerow.config import ContextConfig, SamplingConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.forest import samples as numbering
from hedgerow.forest.arrays import LEAF
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.planes import N_EDGES, PROBA_EDGES, TrainingPlanes, fit_edges
from hedgerow.forest.samples import Samples
from hedgerow.io.model_file import file_content
from hedgerow.kernels.cpu import grow as kernels
from hedgerow.kernels.cpu.plane_ops import encode
from hedgerow.kernels.definition import forest as plain

NOTHING = np.zeros(0, np.int32)


def impurity_drop(counts_left, counts_right, criterion):
    """The weighted drop in impurity of a split, from the class weights (C,) on either side: the textbook's words."""

    def impurity(counts):
        p = counts / counts.sum()
        return 1 - (p**2).sum() if criterion == "gini" else -(p[p > 0] * np.log(p[p > 0])).sum()

    whole = counts_left + counts_right
    parts = sum(side.sum() / whole.sum() * impurity(side) for side in (counts_left, counts_right))
    return impurity(whole) - parts


def best_drop(columns, target, weight, criterion, min_leaf):
    """Over every column (n,S) and every threshold between two of its values, the largest drop in impurity."""
    n_classes = len(weight)
    best = 0.0
    for column in columns:
        for value in np.unique(column)[1:]:
            right = column >= value
            if min(right.sum(), (~right).sum()) < min_leaf:
                continue
            sides = [np.bincount(target[side], minlength=n_classes) * weight for side in (~right, right)]
            best = max(best, impurity_drop(*sides, criterion))
    return best


def table_planes(values, coded=True):
    """A table (F,S) as one image of a single row."""
    n_columns, n_samples = values.shape
    edges = np.stack([fit_edges(column) for column in values])
    codes = np.zeros((n_columns, n_samples), np.uint8)
    for f in range(n_columns):
        encode(values[f], edges[f], codes[f])
    none = np.zeros((0, 0))
    sizes = np.ones(1, np.int32)
    return TrainingPlanes(
        codes=codes if coded else none.astype(np.uint8),
        values=none.astype(np.float32) if coded else values,
        edges=edges,
        start=0 * sizes,
        depth=sizes,
        height=sizes,
        width=n_samples * sizes,
        stretch=np.zeros(0, np.float32),
        outside=np.zeros(0, np.float32),
        radii=(0,),
        proposals="offsets",
    )


def table_samples(target):
    zero, place = np.zeros(len(target), np.int32), np.arange(len(target), dtype=np.int32)
    return Samples(zero, zero, place, zero, place, target.astype(np.int32), zero)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize(("n_samples", "n_classes", "min_leaf"), [(40, 2, 1), (120, 5, 4), (110, 1, 1)])
def test_every_split_is_the_best_of_all(criterion, balance, coded, n_samples, n_classes, min_leaf):
    rng = np.random.default_rng(n_samples + n_classes)
    values = rng.integers(0, 12, (4, n_samples)).astype(np.float32)
    values[1] = values[0]  # equal columns
    values[2] = 3  # a constant one
    target = rng.integers(0, n_classes, n_samples)
    config = StackConfig(
        criterion=criterion,
        balance=balance,
        bootstrap=False,
        max_depth=6,
        min_split=8,
        min_leaf=min_leaf,
        context=ContextConfig(window=1, n_channels=4, n_offsets=0, n_probes=1 if coded else 2),
    )
    planes = table_planes(values, coded)
    grown = grow_forest(planes, table_samples(target), [NOTHING], n_classes, config, (0,))
    forest = planes.over_channels(grown)
    forest.validate()
    counts = np.bincount(target, minlength=n_classes)
    weight = n_samples / (n_classes * np.maximum(counts, 1)) if balance else np.ones(n_classes)

    members = {0: np.arange(n_samples)}
    n_splits = 0
    for node in range(forest.n_nodes):
        here = members[node]
        best = best_drop(values[:, here], target[here], weight, criterion, min_leaf)
        if forest.left_child[node] == LEAF:
            depth_reached = len(here) < config.min_split or best < 1e-8
            assert depth_reached or _depth(forest, node) == config.max_depth
            votes = np.bincount(target[here], minlength=n_classes) * weight
            np.testing.assert_allclose(forest.votes[forest.leaf_index[node]], votes / votes.sum(), atol=1e-3)
            continue
        n_splits += 1
        right = values[forest.channel[node, 0], here] >= forest.threshold[node]
        sides = [np.bincount(target[here[side]], minlength=n_classes) * weight for side in (~right, right)]
        assert impurity_drop(*sides, criterion) == pytest.approx(best, abs=1e-9)
        members[forest.left_child[node]], members[forest.left_child[node] + 1] = here[~right], here[right]
    assert n_splits > 0 or n_classes == 1


def _depth(forest, node):
    depth = 0
    while node:
        node = int(np.flatnonzero((forest.left_child == node) | (forest.right_child == node))[0])
        depth += 1
    return depth


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 300),
    n_classes=st.integers(1, 6),
    n_bins=st.integers(2, 40),
    entropy=st.booleans(),
    min_leaf=st.integers(1, 20),
)
def test_best_cut_equals_brute_force(seed, n, n_classes, n_bins, entropy, min_leaf):
    rng = np.random.default_rng(seed)
    samples = np.zeros((6, n + 3), np.int32)
    samples[kernels.TARGET] = rng.integers(0, n_classes, n + 3)
    samples[kernels.COUNT] = rng.integers(1, 4, n + 3)
    bins = rng.integers(0, n_bins, n).astype(np.uint8)
    weight = rng.uniform(0.1, 3, n_classes)
    target, count = samples[kernels.TARGET, 3:], samples[kernels.COUNT, 3:]
    node_counts = np.bincount(target, count, n_classes).astype(np.int64)
    work = np.empty(256 * n_classes + 256 + n, np.int32)
    _, cut = kernels.best_cut(bins, samples, 3, n, n_bins, weight, node_counts, entropy, min_leaf, work)

    drops = {}
    for b in range(1, n_bins):
        right = bins >= b
        if not min_leaf <= count[right].sum() <= count.sum() - min_leaf:
            continue
        sides = [np.bincount(target[side], count[side], n_classes) * weight for side in (~right, right)]
        drops[b] = impurity_drop(*sides, "entropy" if entropy else "gini")
    if drops:
        assert drops[cut] == pytest.approx(max(drops.values()), abs=1e-9)
    else:
        assert cut == 0


def two_images(rng, n_planes=3):
    """Planes of two images of different sizes, as codes, with every pixel a sample."""
    sizes = [(5, 7), (6, 4)]
    planes = [rng.integers(0, 256, (n_planes, *size)).astype(np.uint8) for size in sizes]
    grid = [np.indices(size).reshape(2, -1) for size in sizes]
    row, column = np.concatenate(grid, axis=1)
    image = np.repeat([0, 1], [35, 24])
    samples = np.stack([row, column, image, np.arange(59), 0 * row, 0 * row + 1]).astype(np.int32)
    flat = np.concatenate([p.reshape(n_planes, -1) for p in planes], axis=1)
    layout = tuple(np.array(v, np.int32) for v in ([0, 35], [5, 6], [7, 4], [0, 1], [1, 2]))
    return planes, flat, layout, samples


@pytest.mark.parametrize("offset", [(0, 0, 0), (0, 2, -3), (3, -9, 1), (-1, 64, 64)])
def test_codes_are_read_at_offsets_with_the_nearest_edge(offset):
    planes, flat, layout, samples = two_images(np.random.default_rng(0))
    bins = np.zeros(50, np.uint8)
    place = np.zeros(50, np.uint32)
    read = kernels.Planes(flat, flat[:0].astype(np.float32), *layout, *np.zeros((2, 0), np.float32))
    probe = kernels.Probes(np.array([[2]], np.int32), np.array([[offset]], np.float32), np.ones((1, 1), np.float32))
    kernels.fill_codes(read, samples, 9, 50, probe, 0, place, bins)
    for i in range(50):
        row, column, image = samples[:3, 9 + i]
        assert bins[i] == plain.read(planes[image][2:3], (offset[0], row + offset[1], column + offset[2]), None)


def two_volumes(rng, n_planes=3):
    """Volumes (P,Z,H,W) of codes, all their pixels as flat planes, their layout, and a sample at every pixel."""
    sizes = [(3, 4, 5), (2, 3, 2)]
    planes = [rng.integers(0, 256, (n_planes, *size)).astype(np.uint8) for size in sizes]
    z, row, column = np.concatenate([np.indices(size).reshape(3, -1) for size in sizes], axis=1)
    image, pixel = np.repeat([0, 1], [60, 12]), np.arange(72)
    samples = np.stack([row, column, 3 * image + z, pixel, 0 * row, 0 * row + 1]).astype(np.int32)
    flat = np.concatenate([p.reshape(n_planes, -1) for p in planes], axis=1)
    start = [0, 20, 40, 60, 66]
    layout = [start, [4] * 3 + [3] * 2, [5] * 3 + [2] * 2, [0] * 3 + [3] * 2, [3] * 3 + [5] * 2]
    return planes, flat, [np.array(each, np.int32) for each in layout], samples, (image, z)


@pytest.mark.parametrize("offset", [(1, 0, 0), (-1, 2, -3), (2, -9, 1), (-64, 64, 64), (0, 1, 1)])
def test_codes_of_volumes_are_read_at_offsets_with_the_nearest_edge(offset):
    planes, flat, layout, samples, (image, z) = two_volumes(np.random.default_rng(0))
    bins, place = np.zeros(60, np.uint8), np.zeros(60, np.uint32)
    read = kernels.Planes(flat, flat[:0].astype(np.float32), *layout, *np.zeros((2, 0), np.float32))
    probe = kernels.Probes(np.array([[2]], np.int32), np.array([[offset]], np.float32), np.ones((1, 1), np.float32))
    kernels.fill_codes(read, samples, 9, 60, probe, 0, place, bins)
    for i in range(60):
        at = tuple(np.array([z[9 + i], *samples[:2, 9 + i]]) + offset)
        assert bins[i] == plain.read(planes[image[9 + i]][2], at, None)


def test_values_of_volumes_are_summed_as_the_definition_says():
    from helpers.forests import random_forest

    rng = np.random.default_rng(1)
    planes, flat, layout, samples, (image, z) = two_volumes(rng)
    forest = random_forest(rng, n_trees=1, n_probes=3, n_channels=3, reach_z=3)
    read = kernels.Planes(flat[:0], flat.astype(np.float32), *layout, *np.zeros((2, 0), np.float32))
    values = np.zeros(72, np.float32)
    kernels.fill_values(read, samples, 0, 72, kernels.Probes(forest.channel, forest.offset, forest.weight), 0, values)
    for i in range(72):
        place = (z[i], *samples[:2, i])
        assert values[i] == plain.split_value(forest, 0, planes[image[i]].astype(np.float32), place)


@pytest.mark.slow  # the kernel is compiled once more
@pytest.mark.parametrize("changes", [{}, {"context": ContextConfig(window=9, n_offsets=3, n_probes=2)}])
def test_more_pixels_than_half_as_many_bits_can_number(example, tiny_config, monkeypatch, changes):
    """Two thousand million pixels do not fit in a test: few are numbered as so many would be."""
    config = replace(tiny_config, **changes)
    expected = hr.fit_stack(example.images, example.labels, config)
    monkeypatch.setattr(numbering, "MIN_INT64_PIXELS", 1)
    kinds = []
    grow = kernels.split_nodes

    def noting(planes, table, place, *others):
        kinds.append((table.dtype, place.dtype))
        return grow(planes, table, place, *others)

    monkeypatch.setattr(kernels, "split_nodes", noting)
    found = hr.fit_stack(example.images, example.labels, config)
    assert set(kinds) == {(np.dtype(np.int64), np.dtype(np.uint64))}
    assert file_content(found) == file_content(expected)


def test_what_does_not_fit_in_memory_is_refused(example, tiny_config, monkeypatch):
    monkeypatch.setattr("hedgerow.memory.available", lambda: 1000)
    with pytest.raises(InputError, match=r"pixels of \d+ bytes each, .* 0\.00 GB of memory, but only .* are available"):
        hr.fit_stack(example.images, example.labels, tiny_config)


@pytest.mark.parametrize("constant", [True, False])
def test_values_are_summed_as_the_definition_says(constant):
    from helpers.forests import random_forest

    rng = np.random.default_rng(1)
    planes, flat, layout, samples = two_images(rng)
    stretch = rng.uniform(0.2, 3, 59).astype(np.float32)
    outside = rng.standard_normal(3).astype(np.float32) if constant else np.zeros(0, np.float32)
    forest = random_forest(rng, n_trees=1, n_probes=2, n_channels=3)
    read = kernels.Planes(flat[:0], flat.astype(np.float32), *layout, stretch, outside)
    probes = kernels.Probes(forest.channel, forest.offset, forest.weight)
    values = np.zeros(59, np.float32)
    kernels.fill_values(read, samples, 0, 59, probes, 0, values)
    stretches = stretch[:35].reshape(5, 7), stretch[35:].reshape(6, 4)
    for i in range(59):
        row, column, image = samples[:3, i]
        context = {"stretch": stretches[image], "outside": outside if constant else None}
        expected = plain.split_value(forest, 0, planes[image][:, None].astype(np.float32), (0, row, column), **context)
        assert values[i] == expected


@settings(max_examples=100)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=400))
def test_codes_say_what_thresholds_say(numbers):
    """code >= k iff value >= edges[k-1]: training and prediction send a pixel the same way."""
    values = np.array(numbers, np.float32)
    edges = fit_edges(values)
    codes = np.zeros(len(values), np.uint8)
    encode(values, edges, codes)
    np.testing.assert_array_equal(codes, (values[:, None] >= edges[None, :]).sum(axis=1))
    assert (np.diff(edges[np.isfinite(edges)]) > 0).all()
    if len(np.unique(values)) <= N_EDGES + 1:
        assert len(np.unique(codes)) == len(np.unique(values)), "few values must all stay apart"


def test_probability_edges_are_usable():
    assert len(PROBA_EDGES) == N_EDGES
    assert (np.diff(PROBA_EDGES) > 0).all()
    assert 0 < PROBA_EDGES[0] < 1e-4
    assert PROBA_EDGES[-1] < 1


def test_thresholds_between_neighbouring_floats():
    low = np.float32(1)
    values = np.array([low, np.nextafter(low, np.float32(2))] * 20, np.float32)[None]
    target = np.arange(40) % 2
    for coded in (True, False):
        planes = table_planes(values, coded)
        config = StackConfig(
            bootstrap=False,
            min_split=2,
            context=ContextConfig(window=1, n_offsets=0, n_probes=1 if coded else 2),
        )
        forest = planes.over_channels(grow_forest(planes, table_samples(target), [NOTHING], 2, config, (0,)))
        right = values[0] >= forest.threshold[0]
        np.testing.assert_array_equal(right, target == 1)


def test_a_large_node_is_searched_on_a_selection():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, 4000)).astype(np.float32)
    target = (values[1] > 0.3).astype(int)
    planes = table_planes(values)
    config = StackConfig(
        search_samples=500, max_depth=1, bootstrap=False, context=ContextConfig(window=1, n_channels=3)
    )
    forest = planes.over_channels(grow_forest(planes, table_samples(target), [NOTHING], 2, config, (0,)))
    assert forest.channel[0, 0] == 1
    assert forest.threshold[0] == pytest.approx(0.3, abs=0.05)


def test_skipped_groups_are_not_seen():
    rng = np.random.default_rng(3)
    values = rng.standard_normal((2, 200)).astype(np.float32)
    target = np.repeat([0, 1, 2], [100, 50, 50])
    samples = replace(table_samples(target), group=np.repeat([0, 1, 2], [100, 50, 50]).astype(np.int32))
    config = StackConfig(context=ContextConfig(window=1), sampling=SamplingConfig())
    grown = grow_forest(table_planes(values), samples, [np.array([2]), np.array([1])], 3, config, (0,))
    for tree, absent in ((0, 2), (1, 1)):
        part = grown.select(np.array([tree]))
        votes = part.votes[part.leaf_index[part.left_child == LEAF]]
        assert (votes[:, absent] == 0).all()
        assert (votes.sum(axis=0) > 0).sum() == 2


def test_votes_are_shares_or_numbers_of_samples(example, tiny_config):
    config = replace(tiny_config, n_levels=1, held_out="none", bootstrap=False)
    shares, counts = (
        hr.fit_stack(example.images, example.labels, replace(config, votes=votes)) for votes in ("shares", "counts")
    )
    (first,), (second,) = shares.levels, counts.levels
    np.testing.assert_array_equal(first.threshold, second.threshold)
    n_samples = second.votes.sum(axis=1)
    assert (second.votes == np.rint(second.votes)).all()
    assert len(np.unique(n_samples)) > 3
    np.testing.assert_allclose(first.votes, second.votes / n_samples[:, None], rtol=1e-3, atol=1e-6)
    trees = [second.votes[second.leaf_index[a:b][second.leaf_index[a:b] >= 0]].sum() for a, b in
             zip(second.root, [*second.root[1:], second.n_nodes], strict=True)]  # fmt: skip
    assert len(set(trees)) == 1  # without bootstrap every tree sees every sample


def test_the_papers_candidates_compare_depths_alone_and_those_on_probabilities_come_on_top():
    images, labels = hr.synthetic.bodies(4, (60, 80), seed=3)
    stack = hr.fit_stack(images, labels, hr.StackConfig.kinect(n_trees=6, max_depth=8))
    first, second = stack.levels
    assert set(np.unique(first.channel[first.is_split, 0])) == {0}
    read = second.channel[second.is_split, 0]
    assert (read == 0).any()
    assert (read >= 2).any()
    assert not (read == 1).any()  # whether anything was seen is no feature of the paper's
    shared = replace(hr.ContextConfig(), n_candidates=100)
    ours = hr.fit_stack(images, labels, hr.StackConfig.kinect(n_trees=6, max_depth=8, context=shared))
    assert (ours.levels[0].channel[ours.levels[0].is_split, 0] == 1).any()
