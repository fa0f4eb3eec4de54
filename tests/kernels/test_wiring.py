"""How a level is wired and laid out: paths as edges, and what each probe reads, against the plain definition."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.images.regions import Region
from hedgerow.kernels.constants import UNUSED
from hedgerow.kernels.definition import forest as plain
from hedgerow.kernels.wiring import Reads, places, wire
from hedgerow.network.layout import Grid, Source, lattice, lay_out, region_grid
from helpers.forests import random_forest
from helpers.leaf_paths import leaf_paths
from helpers.net_cases import N_FEATURES, level_case

FORESTS = [
    {},
    {"n_trees": 1, "max_depth": 0},
    {"n_trees": 9, "leaf_chance": 0.6},
    {"n_trees": 1, "max_depth": 1, "leaf_chance": 0},
    {"n_trees": 2, "max_depth": 8},
]


def wiring_of(forest):
    return wire(forest.root, forest.left_child)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", FORESTS)
def test_edges_are_the_paths_of_the_leaves(seed, shape):
    forest = random_forest(np.random.default_rng(seed), **shape)
    wiring, paths = wiring_of(forest), leaf_paths(forest)
    np.testing.assert_array_equal(wiring.node_split, np.flatnonzero(forest.is_split))
    np.testing.assert_array_equal(wiring.node_leaf, np.flatnonzero(~forest.is_split))
    # Random forests number their leaves in the order of nodes, as the neurons are.
    np.testing.assert_array_equal(forest.leaf_index[wiring.node_leaf], np.arange(forest.n_leaves))
    np.testing.assert_array_equal(wiring.path_length, np.diff(paths.start))
    np.testing.assert_array_equal(wiring.edge_leaf, np.repeat(np.arange(forest.n_leaves), np.diff(paths.start)))
    np.testing.assert_array_equal(wiring.node_split[wiring.edge_split], paths.node)
    np.testing.assert_array_equal(wiring.edge_sign, paths.sign)


@pytest.mark.parametrize("shape", FORESTS)
def test_neurons_know_their_nodes_and_trees(shape):
    forest = random_forest(np.random.default_rng(4), **shape)
    wiring = wiring_of(forest)
    assert (wiring.n_splits, wiring.n_leaves) == (int(forest.is_split.sum()), forest.n_leaves)
    assert wiring.n_trees == forest.n_trees
    np.testing.assert_array_equal(wiring.split_of[wiring.node_split], np.arange(wiring.n_splits))
    np.testing.assert_array_equal(wiring.leaf_of[wiring.node_leaf], np.arange(wiring.n_leaves))
    assert (wiring.split_of[wiring.node_leaf] == UNUSED).all()
    assert (wiring.leaf_of[wiring.node_split] == UNUSED).all()
    ends = [*forest.root[1:], forest.n_nodes]
    for tree, (first, last) in enumerate(zip(forest.root, ends, strict=True)):
        inside = (wiring.node_leaf >= first) & (wiring.node_leaf < last)
        np.testing.assert_array_equal(wiring.leaf_tree == tree, inside)


def test_fixed_places_move_with_the_pixel():
    reads = Reads((2, 2, 3), np.array([[5], [UNUSED], [40]]), stride=10, slice_stride=100, carried=0)
    assert not reads.is_stretched
    assert reads.n_pixels == 12
    index = places(reads, 0, 12)
    assert index.shape == (3, 1, 12)
    np.testing.assert_array_equal(index[0, 0], [5, 6, 7, 15, 16, 17, 105, 106, 107, 115, 116, 117])
    np.testing.assert_array_equal(index[1, 0], 0)
    np.testing.assert_array_equal(places(reads, 2, 5), index[..., 2:5])
    np.testing.assert_array_equal(index[0, 0, 6:], index[0, 0, :6] + reads.slice_start(1))


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("corner", [(0, 0), (1, 2)])
def test_stretched_places_are_the_nearest_points(step, corner):
    """One plane per probe: of the features, known everywhere, or of the level before, known on a lattice."""
    rng = np.random.default_rng(step)
    height, width = 11, 14
    known = lattice(height, width, step, *corner)
    rows, columns = (axis.ravel() for axis in np.meshgrid(known.rows, known.columns, indexing="ij"))
    offset = rng.integers(-9, 10, (6, 2, 2)).astype(np.float32)
    place = rng.integers(0, 2, (6, 2)).astype(np.int64)
    place[3, 1] = UNUSED
    stretch = rng.uniform(0.2, 2.0, len(rows)).astype(np.float32)
    start = height * width + 1
    reads = Reads(
        known.size, place, 0, 0, start, offset, rows, columns, stretch,
        np.array([[0, height, width, 0, 0, 1], [start, *known.size[1:], *corner, step]]), (height, width),
    )  # fmt: skip
    index = places(reads, 0, len(rows))
    assert index[3, 1].max() == 0
    beyond = 0
    for (n, j), plane in np.ndenumerate(place):
        for s in range(len(rows)) if plane != UNUSED else ():
            moved = np.floor(offset[n, j] * stretch[s] + np.float32(0.5)).astype(int)
            row, column = rows[s] + moved[0], columns[s] + moved[1]
            first, grid = (0, Grid(0, 0, height, width)) if plane == 0 else (start, known)
            if not (0 <= row < height and 0 <= column < width):
                assert index[n, j, s] == first + grid.height * grid.width
                beyond += 1
                continue
            i, k = divmod(int(index[n, j, s]) - first, grid.width)
            assert abs(grid.rows[i] - row) == np.abs(grid.rows - row).min()
            assert abs(grid.columns[k] - column) == np.abs(grid.columns - column).min()
    assert beyond > 10
    np.testing.assert_array_equal(places(reads, 5, 9), index[..., 5:9])


def nearest(grid, row, column):
    """The grid's point nearest to a pixel, the later one of two, as numbers of its row and column."""
    i, k = ((at + grid.step // 2) // grid.step for at in (row - grid.top, column - grid.left))
    return min(max(i, 0), grid.height - 1), min(max(k, 0), grid.width - 1)


def expected_reading(level, n, j, z, row, column):
    """What probe j of split n sees from a pixel of the image: the plain definition, channel by channel."""
    node, source = level.wiring.node_split[n], level.source
    channel, radius = level.forest.channel[node, j], int(level.forest.radius[node, j])
    stretch = np.float32(1) if source.stretch is None else source.stretch[row, column]
    outside = None if source.outside is None else float(source.outside[channel])
    z += int(level.forest.offset[node, j, 0])
    down, right = (int(np.floor(o * stretch + np.float32(0.5))) for o in level.forest.offset[node, j, 1:])
    if channel < N_FEATURES:
        return plain.box_mean(source.features[channel].numpy(), (z, row + down, column + right), radius, outside)
    _, height, width = source.extent
    if outside is not None and not (0 <= row + down < height and 0 <= column + right < width):
        return outside
    i, k = nearest(source.known, row + down, column + right)
    plane = source.before[channel - N_FEATURES].numpy()
    return plain.box_mean(plane, (z - source.known.front, i, k), radius // level.grid.step, outside)


LAYOUTS = {
    "offsets": {},
    "windows": {"radii": (0, 1, 3)},
    "far outside": {"radii": (0, 1), "reach": 60},
    "no reach": {"reach": 0, "radii": (0, 3)},
    "every second pixel": {"step": 2, "corner": (1, 0), "radii": (0, 2)},
    "every third pixel": {"step": 3, "corner": (1, 2), "size": (5, 4), "radii": (0, 3), "reach": 9},
    "one pixel": {"size": (1, 1), "radii": (0, 1)},
    "one row": {"size": (1, 17), "radii": (0, 1)},
    "stretched": {"stretched": True, "radii": (0, 1, 3)},
    "stretched lattice": {"stretched": True, "step": 3, "corner": (1, 2), "size": (5, 4), "radii": (0, 3), "reach": 9},
    "slices": {"size": (4, 3, 5), "reach_z": 2, "radii": (0, 1)},
    "slices far outside": {"size": (3, 3, 5), "reach_z": 9},
    "every second pixel of slices": {"size": (3, 4, 3), "step": 2, "corner": (1, 0), "radii": (0, 2), "reach_z": 1},
}


def assert_reads_are_plain(level):
    grid, index = level.grid, places(level.reads, 0, level.reads.n_pixels)
    slices = range(grid.front, grid.front + grid.depth)
    pixels = [(z, row, column) for z in slices for row in grid.rows for column in grid.columns]
    used = level.forest.weight[level.wiring.node_split] != 0
    np.testing.assert_array_equal(level.reads.place != UNUSED, used)
    for n, j in np.argwhere(used):
        expected = [expected_reading(level, n, j, *pixel) for pixel in pixels]
        radius = level.forest.radius[level.wiring.node_split[n], j]
        # Boxes are averaged in float32; a single pixel is read as it is.
        np.testing.assert_allclose(level.values[index[n, j]], expected, rtol=0, atol=2e-6 if radius else 0)


@pytest.mark.parametrize("case", LAYOUTS)
def test_probes_read_what_the_definition_reads(case):
    level = level_case(**{"size": (7, 9), "n_trees": 2, "n_probes": 2, "unused": True, **LAYOUTS[case]})
    assert_reads_are_plain(level)


def test_stretched_probes_without_a_constant_read_the_edge():
    assert_reads_are_plain(level_case(size=(7, 9), n_trees=2, stretched=True, outside=False))


@pytest.mark.parametrize("stretched", [False, True])
def test_a_region_reads_what_the_whole_reads(stretched):
    level = level_case(size=(12, 15), n_trees=2, radii=(0, 1, 3), stretched=stretched)
    for region in (Region(0, 12, 0, 15), Region(3, 9, 14, 15), Region(0, 1, 0, 1), Region(5, 12, 2, 13)):
        assert_reads_are_plain(level.on(region_grid(region)))


def test_a_region_of_a_volume_reads_what_the_whole_reads():
    level = level_case(size=(6, 5, 4), n_trees=2, radii=(0, 1), reach_z=2)
    for region in (Region(0, 5, 0, 4, 2, 4), Region(1, 2, 3, 4, 5, 6), Region(0, 3, 0, 4, 0, 1)):
        assert_reads_are_plain(level.on(region_grid(region)))


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("step", [2, 3])
def test_a_part_of_a_lattice_reads_what_the_lattice_reads(step, stretched):
    level = level_case(size=(7, 9), step=step, corner=(1, 1), n_trees=2, radii=(0, 3), stretched=stretched)
    for i, k, height, width in ((0, 0, 7, 9), (2, 3, 4, 5), (6, 8, 1, 1)):
        assert_reads_are_plain(level.on(Grid(1 + step * i, 1 + step * k, height, width, step)))


@pytest.mark.parametrize("stretched", [False, True])
def test_what_is_carried_comes_last(stretched):
    level = level_case(size=(5, 6), n_probes=2, stretched=stretched)
    index = places(level.reads, 0, 30)
    is_before = level.forest.channel[level.wiring.node_split] >= N_FEATURES
    assert is_before.any()
    assert not is_before.all()
    np.testing.assert_array_equal((index >= level.reads.carried).all(axis=-1), is_before)
    np.testing.assert_array_equal((index >= level.reads.carried).any(axis=-1), is_before)


@pytest.mark.parametrize("outside", [None, 0.7])
def test_boxes_with_a_gradient_are_the_same_boxes(outside):
    """While training, the level before is averaged by PyTorch; else by the forest's own kernel."""
    level = level_case(size=(7, 9), radii=(1, 3), n_probes=2)
    constants = None if outside is None else np.full(4, outside, np.float32)
    source = replace(level.source, outside=constants)
    trained = replace(source, before=source.before.clone().requires_grad_())
    values, reads = lay_out(level.forest, level.wiring, source, level.grid)
    same, _ = lay_out(level.forest, level.wiring, trained, level.grid)
    np.testing.assert_allclose(same.detach(), values, atol=1e-6)
    same[reads.carried :].sum().backward()
    assert trained.before.grad.abs().min() > 0


LATTICES = [
    {"size": (5, 6)},
    {"size": (4, 3, 5), "reach_z": 2},
    {"size": (3, 2, 3), "step": 2, "corner": (0, 1), "reach_z": 4},
    {"size": (4, 5), "step": 2, "corner": (1, 0)},
    {"size": (3, 7), "step": 3, "corner": (2, 1)},
    {"size": (1, 1), "step": 5, "corner": (3, 4)},
]


@pytest.mark.parametrize("radii", [(0,), (0, 1, 3)])
@pytest.mark.parametrize("shape", LATTICES)
def test_what_trains_is_laid_out_as_what_does_not(shape, radii):
    """Features on a CPU that do not train are laid out by threads, all else by PyTorch."""
    level = level_case(**shape, radii=radii, n_probes=2)
    trained = replace(level.source, features=level.source.features.clone().requires_grad_())
    values, reads = lay_out(level.forest, level.wiring, level.source, level.grid)
    same, same_reads = lay_out(level.forest, level.wiring, trained, level.grid)
    assert same_reads.features_train
    assert not reads.features_train
    np.testing.assert_array_equal(same_reads.place, reads.place)
    np.testing.assert_allclose(same.detach(), values, rtol=0, atol=1e-6 if max(radii) else 0)


@pytest.mark.parametrize("stretched", [False, True])
def test_without_gradients_nothing_trains_and_the_forests_own_boxes_are_read(stretched):
    level = level_case(size=(7, 9), radii=(0, 1, 3), n_probes=2, stretched=stretched)
    features, before = (one.clone().requires_grad_() for one in (level.source.features, level.source.before))
    with torch.no_grad():
        same = replace(level, source=replace(level.source, features=features, before=before)).on(level.grid)
    assert not same.reads.features_train
    assert not same.values.requires_grad
    np.testing.assert_array_equal(same.values, level.values)


def test_what_is_given_precisely_is_laid_out_precisely():
    level = level_case(size=(7, 9), radii=(0, 1), n_probes=2)
    source = replace(level.source, features=level.source.features.double() / 3, before=level.source.before.double() / 3)
    values, _ = lay_out(level.forest, level.wiring, source, level.grid)
    assert values.dtype == torch.float64
    trained = replace(source, features=source.features.clone().requires_grad_())
    same, _ = lay_out(level.forest, level.wiring, trained, level.grid)
    np.testing.assert_array_equal(values, same.detach())


@pytest.mark.parametrize("shape", LATTICES)
def test_gradients_go_back_to_where_values_were_read(shape):
    """Laying out is linear, so its gradient is the transposed map: <A u, w> = <u, A' w>."""
    level = level_case(**shape, radii=(0, 1), n_probes=2)
    source = replace(
        level.source,
        features=level.source.features.double().requires_grad_(),
        before=level.source.before.double().requires_grad_(),
    )
    values, _ = lay_out(level.forest, level.wiring, source, level.grid)
    slope = torch.from_numpy(np.random.default_rng(1).standard_normal(len(values)))
    values.backward(slope)
    back = (source.features.grad * source.features).sum() + (source.before.grad * source.before).sum()
    np.testing.assert_allclose(back.detach(), values.detach() @ slope, rtol=1e-9)


def test_places_are_kept_apart_where_grids_differ():
    """One forest, read in turn at another step, on another grid, in a smaller image, and with more features."""
    level = level_case(size=(5, 5), reach=9)
    channels = torch.arange(4 * 24 * 24, dtype=torch.float32).reshape(4, 1, 24, 24)
    large, small = (24, 24), (7, 7)
    cases = [
        (large, N_FEATURES, Grid(0, 0, 5, 5)),
        (large, N_FEATURES, Grid(0, 0, 5, 5, 2)),
        (large, N_FEATURES, Grid(0, 0, 4, 6)),
        (small, N_FEATURES, Grid(0, 0, 5, 5)),
        (large, N_FEATURES + 1, Grid(0, 0, 5, 5)),
    ]
    for (height, width), n_features, grid in cases:
        features, before = (
            channels[:n_features, :, :height, :width],
            channels[n_features:, :, : grid.height, : grid.width],
        )
        source = Source(features, before, grid)
        values, reads = lay_out(level.forest, level.wiring, source, grid)
        expected, afresh = lay_out(level.forest, wiring_of(level.forest), source, grid)
        np.testing.assert_array_equal(values, expected)
        n_pixels = grid.height * grid.width
        np.testing.assert_array_equal(places(reads, 0, n_pixels), places(afresh, 0, n_pixels))
        assert reads.carried == afresh.carried == reads.first_trained


def test_many_planes_are_taken_in_few_calls():
    """A GPU would wait for the thousands of small calls that they take one by one."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        n_calls = 0

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.n_calls += 1
            return function(*arguments, **(options or {}))

    counts, n_rows = [], []
    for step in (1, 5):
        level = level_case(size=(6, 7), step=step, n_trees=9, max_depth=7, reach=12)
        source = replace(level.source, features=level.source.features.clone().requires_grad_())
        with Counted() as calls:
            values, _ = lay_out(level.forest, level.wiring, source, level.grid)
        counts.append(calls.n_calls)
        n_rows.append(len(values) // level.reads.stride)
    assert n_rows[1] > 4 * n_rows[0]
    assert counts[1] < counts[0] + 10


def test_stretched_grids_share_what_is_the_same_for_all_of_them():
    """To find it takes longer than all else in a step of training."""
    level = level_case(size=(12, 15), n_trees=2, stretched=True)
    part = level.on(region_grid(Region(3, 9, 4, 15)))
    assert part.reads.size != level.reads.size
    assert part.reads.place is level.reads.place
    assert part.reads.offset is level.reads.offset


def test_lattices_of_one_size_share_their_places_wherever_they_begin():
    level = level_case(size=(4, 5), step=3, corner=(2, 2))
    grid = replace(level.grid, top=1, left=0)
    source = replace(level.source, known=grid)
    values, reads = lay_out(level.forest, level.wiring, source, grid)
    assert reads is level.reads
    afresh, _ = lay_out(level.forest, wiring_of(level.forest), source, grid)
    np.testing.assert_array_equal(values, afresh)
    assert (values != level.values).any()


@pytest.mark.parametrize("outside", [None, np.zeros(4, np.float32)])
def test_leaves_alone_read_nothing(outside):
    forest = random_forest(np.random.default_rng(0), max_depth=0)
    values, reads = lay_out(
        forest, wiring_of(forest), Source(torch.zeros(2, 1, 3, 4), outside=outside), Grid(0, 0, 3, 4)
    )
    assert values.shape == (1,)
    assert places(reads, 0, 12).shape == (0, 1, 12)


def test_grids():
    image = np.arange(7 * 9).reshape(7, 9)
    grid = lattice(7, 9, 3, 1, 2)
    assert grid.size == (1, 2, 3)
    np.testing.assert_array_equal(grid.of(image), image[np.ix_(grid.rows, grid.columns)])
    np.testing.assert_array_equal(lattice(7, 9, 2).of(image), image[::2, ::2])
    np.testing.assert_array_equal(region_grid(Region(2, 5, 1, 9)).of(image), image[2:5, 1:9])
