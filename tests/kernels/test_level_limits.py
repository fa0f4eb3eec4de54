"""The fused kernels at their limits: branches dropped, blocks, threads, unwritten memory, extreme inputs and NaN."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow import threads
from hedgerow.kernels.cpu import level_arguments, level_work
from hedgerow.network.layout import Grid
from helpers.net_cases import (
    BACKENDS,
    EPS,
    KINDS,
    PARAMETERS,
    SMOOTH,
    fitting,
    gradients,
    leaf_activations,
    level_case,
    level_scores,
    precise,
    slope_of,
)

DROPPING = KINDS[2:]


@pytest.mark.parametrize(("split", "activation"), DROPPING)
@pytest.mark.parametrize("tolerance", [1e-6, 1e-3, 1e-2])
def test_dropped_branches_change_scores_by_no_more_than_they_carry(split, activation, tolerance):
    # A tree of depth 6 has a leaf that carries 1/64 at least, so no pixel loses them all.
    level = level_case(size=(9, 17), max_depth=6, leaf_chance=0.1)
    exact = level_scores("reference", precise(level), split, activation).numpy()
    dropping = level_scores("numba", level, split, activation, tolerance=tolerance).numpy()
    votes = float(level.vote_weight.abs().max())
    # What is dropped is missing, and where leaves are normalised as much is added to the others.
    bound = (1 + (activation == "softmax")) * tolerance * level.wiring.n_leaves * votes
    assert np.abs(dropping - exact).max() <= bound + 64 * EPS
    if tolerance == 1e-2:
        assert np.abs(dropping - exact).max() > 1e-4, "nothing was dropped: the test is empty"
        dropped = leaf_activations("numba", level, split, activation, tolerance=tolerance) == 0
        assert dropped.mean() > 0.1


def undecided(size=(9, 17)):
    """A tree of depth 11 whose splits know nothing in the left half of the image and all in the right half."""
    level = level_case(size=size, n_trees=1, max_depth=11, leaf_chance=0, reach=0, n_probes=1)
    values = torch.zeros_like(level.source.features)
    values[..., size[1] // 2 :] = 100
    before = torch.zeros_like(level.source.before)
    before[..., size[1] // 2 :] = 100
    level = replace(level, source=replace(level.source, features=values, before=before))
    level = level.on(level.grid)
    return replace(level, split_bias=torch.zeros_like(level.split_bias))


@pytest.mark.parametrize(
    ("split", "activation"),
    [
        ("soft", "exp"),
        ("soft", "softmax"),
        ("crelu", "softmax"),
    ],
)
def test_a_pixel_may_lose_all_its_leaves(split, activation):
    """2^-11 is less than the tolerance: what is left there is not known, but it is a number."""
    level = undecided()
    scores = level_scores("numba", level, split, activation, tolerance=1e-3)
    assert torch.isfinite(scores).all()
    _, given = gradients("numba", level, split, activation, slope_of(level), tolerance=1e-3)
    assert all(np.isfinite(gradient).all() for gradient in given.values())


@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("case", [{"n_probes": 2}, {"stretched": True}, {"radii": (0, 2)}])
def test_a_pixel_does_not_depend_on_its_neighbours_in_the_block(split, activation, tolerance, case):
    level = level_case(size=(20, 37), max_depth=6, n_classes=5, sharpness=8.0, **case)
    whole = level_scores("numba", level, split, activation, 1.0, tolerance).reshape(5, 20, 37)
    for top, left, height, width in ((0, 0, 1, 1), (3, 5, 9, 17), (7, 1, 13, 36), (19, 36, 1, 1)):
        part = level_scores("numba", level.on(Grid(top, left, height, width)), split, activation, 1.0, tolerance)
        expected = whole[:, top : top + height, left : left + width]
        np.testing.assert_array_equal(part.reshape(5, height, width), expected)


@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("case", [{}, {"stretched": True}, {"size": (3, 20, 20), "reach_z": 1}])
def test_threads_change_neither_values_nor_gradients(split, activation, case):
    level = level_case(**{"size": (75, 20), "n_probes": 2, **case})
    slope = slope_of(level)
    with threads.threads(1):
        result, one_gradients = gradients("numba", level, split, activation, slope)
    for count in (2, 5):
        with threads.threads(count):
            more, more_gradients = gradients("numba", level, split, activation, slope)
        np.testing.assert_array_equal(more, result)
        for name in PARAMETERS:
            np.testing.assert_array_equal(more_gradients[name], one_gradients[name], err_msg=name)


class PoisonedNumpy:
    """NumPy, but memory that nobody has written holds NaN, or a number that no node has."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def empty(shape, dtype=float):
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 10**6, dtype)


@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("size", [(1, 1), (9, 17), (8, 16)])
def test_every_number_is_written_before_it_is_read(monkeypatch, split, activation, size):
    level = level_case(size=size, max_depth=8, leaf_chance=0.1)
    slope = slope_of(level)
    expected, expected_gradients = gradients("numba", level, split, activation, slope)
    for module in (level_arguments, level_work):
        monkeypatch.setattr(module, "np", PoisonedNumpy())
    assert np.isnan(level_arguments.make_room(1, 2).carry).all()
    found, found_gradients = gradients("numba", level, split, activation, slope)
    np.testing.assert_array_equal(found, expected)
    for name in PARAMETERS:
        np.testing.assert_array_equal(found_gradients[name], expected_gradients[name], err_msg=name)


@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("stretched", [False, True])
def test_values_that_no_probe_reads_do_not_matter(split, activation, stretched):
    """Scores only: a block that ends beyond the grid reads on, and what it reads must be a number for the gradients."""
    level = level_case(size=(9, 17), stretched=stretched)
    more = replace(level, values=torch.cat([level.values, torch.full((1000,), torch.nan)]))
    np.testing.assert_array_equal(
        level_scores("numba", more, split, activation), level_scores("numba", level, split, activation)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("sharpness", [1e4, 1e7])
def test_extreme_inputs_give_finite_scores_and_gradients(backend, split, activation, sharpness):
    level = fitting(backend, level_case(size=(9, 17), sharpness=sharpness, max_depth=6))
    scores, given = gradients(backend, level, split, activation, slope_of(level), 1.0 if split == "soft" else 100.0)
    assert np.isfinite(scores).all()
    assert all(np.isfinite(gradient).all() for gradient in given.values())
    assert np.abs(scores).max() <= level.wiring.n_trees * 0.5 * (1 + 8 * EPS)


@pytest.mark.parametrize("name", ["split_weight", "split_bias", "vote_weight"])
@pytest.mark.parametrize(("split", "activation"), SMOOTH)
@pytest.mark.parametrize("backend", BACKENDS)
def test_not_a_number_is_not_hidden(backend, split, activation, name):
    level = level_case()
    broken = getattr(level, name).clone()
    broken[0] = torch.nan
    level = fitting(backend, replace(level, **{name: broken}))
    assert torch.isnan(level_scores(backend, level, split, activation)).any(dim=0).all()
