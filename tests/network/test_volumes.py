"""Networks on volumes: the forests' own results, a part as the whole, and slices that know nothing of each other."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.forest.level_input import LevelInput, whole_input
from hedgerow.forest.walk import run_forest, run_level
from hedgerow.images.regions import Region
from hedgerow.network.layout import Grid, Source, lattice, region_grid
from hedgerow.network.mapback import to_forest
from hedgerow.network.mapping import to_convnet
from helpers.net_stacks import SPLITS, random_stack

SIZE = (5, 9, 11)


def noise(seed=0, size=SIZE):
    return np.random.default_rng(seed).standard_normal((2, *size)).astype(np.float32)


def forest_outputs(stack, channels):
    """(C,Z,H,W) after each level, level after level."""
    outputs = []
    for level in range(stack.n_levels):
        read = np.concatenate([channels, *outputs[-1:]])
        outputs.append(run_level(stack, level, whole_input(read)))
    return outputs


@pytest.mark.parametrize("n_probes", [1, 2])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
def test_networks_compute_what_their_forests_do(n_probes, tolerance):
    stack, channels = random_stack(3, n_levels=2, n_probes=n_probes, radii=(0, 1), reach_z=2), noise()
    hard = to_convnet(stack, "hard")
    soft = to_convnet(stack, "soft")
    soft.set_tolerance(tolerance)
    for net, same in ((hard, stack), (soft, to_forest(soft, method="soft"))):
        expected = forest_outputs(same, channels)
        for level, output in enumerate(expected):
            read = np.concatenate([channels, *expected[:level][-1:]])
            np.testing.assert_allclose(net.run_level(level, whole_input(read)), output, atol=2e-6)


@pytest.mark.parametrize("split", SPLITS)
def test_a_crop_says_what_the_whole_volume_says_there(split):
    stack = random_stack(4, n_levels=3, reach_z=1, reach=3)
    net, source = to_convnet(stack, split), Source(torch.from_numpy(noise()))
    part = Region(2, 7, 1, 9, 3, 5)
    with torch.no_grad():
        whole = net(source, net.grids(SIZE, region_grid(Region.whole(SIZE))))[-1].numpy()
        grids = net.grids(SIZE, region_grid(part))
        found = net(source, grids)[-1].numpy()
    assert [grid.depth for grid in grids] == [4, 3, 2], "a slice more for each level, as far as there are any"
    np.testing.assert_allclose(found, part.of_volume(whole), atol=1e-5)


def test_a_lattice_has_every_slice():
    volume = np.arange(np.prod(SIZE)).reshape(SIZE)
    grid = lattice(*SIZE[1:], 3, 1, 2, depth=SIZE[0])
    np.testing.assert_array_equal(grid.of_volume(volume), volume[:, 1::3, 2::3])
    part = Grid(1, 2, 2, 2, 3, front=2, depth=2)
    np.testing.assert_array_equal(part.of_volume(volume), volume[2:4, 1:5:3, 2:6:3])


def test_a_region_of_a_volume_is_computed_as_in_the_whole():
    stack, channels = random_stack(5, n_levels=1, reach_z=1, reach=2), noise()
    net, region = to_convnet(stack, "soft"), Region(1, 8, 2, 4, 1, 3)
    whole = net.run_level(0, whole_input(channels))
    np.testing.assert_array_equal(net.run_level(0, LevelInput(channels, region)), region.of_volume(whole))
    forest = stack.levels[0]
    np.testing.assert_array_equal(
        run_forest(forest, LevelInput(channels, region)), region.of_volume(run_forest(forest, whole_input(channels)))
    )


def test_training_reaches_every_slice():
    """The gradient of one slice's scores lies in the slices that its levels look at, and in no other."""
    stack = random_stack(6, n_levels=2, reach_z=1, n_trees=9, max_depth=5)
    net, features = to_convnet(stack, "soft"), torch.from_numpy(noise()).requires_grad_()
    net(Source(features), net.grids(SIZE, Grid(0, 0, *SIZE[1:], front=0, depth=1)))[-1][0].sum().backward()
    touched = features.grad.abs().amax(dim=(0, 2, 3)) > 0
    assert touched.tolist() == [True, True, True, False, False]
