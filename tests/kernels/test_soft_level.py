"""Soft levels walked pixel by pixel: against the definition, against the kernels of whole blocks, on any threads."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.kernels.cpu import level as cpu_level
from hedgerow.kernels.cpu import level_work
from hedgerow.kernels.cpu.soft_level import MIN_WALKED_TOLERANCE, SoftLevel, factored
from hedgerow.threads import threads
from helpers.net_cases import CASES, EPS, PARAMETERS, assert_agrees, gradients, level_case, level_scores, slope_of

LARGE = {
    "beyond a block, both ways": {"size": (67, 131), "n_trees": 2, "max_depth": 3},
    "a lattice beyond a block": {"size": (17, 129), "step": 2, "corner": (1, 0), "n_trees": 2, "n_classes": 9},
}
WALKED = {name: case for name, case in {**CASES, **LARGE}.items() if not case.get("stretched")}


@pytest.fixture
def walked(monkeypatch):
    """Soft levels are walked whatever the tolerance, so that nothing need be left out."""
    monkeypatch.setattr(level_work, "MIN_WALKED_TOLERANCE", 0.0)
    calls = []
    for name in ("scores", "gradients"):
        plain = getattr(SoftLevel, name)
        monkeypatch.setattr(
            SoftLevel, name, lambda *given, plain=plain, name=name: calls.append(name) or plain(*given)
        )  # fmt: skip
    yield
    assert set(calls) == {"scores", "gradients"}, "this was to be about the walk"


@pytest.mark.parametrize("case", WALKED)
def test_walking_agrees_with_the_definition(walked, case):
    level = level_case(seed=5, **WALKED[case])
    assert_agrees("numba", level, "soft", "exp")
    assert_agrees("numba", level.with_features, "soft", "exp")


@pytest.mark.parametrize("tolerance", [MIN_WALKED_TOLERANCE, 1e-3, 0.2])
@pytest.mark.parametrize("case", ["deep", "three pieces", "unused probes", "every third pixel", *LARGE])
def test_walking_leaves_out_what_blocks_leave_out(monkeypatch, case, tolerance):
    level = level_case(seed=5, **WALKED[case])
    slope = slope_of(level)
    ours, our_gradients = gradients("numba", level, "soft", "exp", slope, tolerance=tolerance)
    monkeypatch.setattr(level_work, "MIN_WALKED_TOLERANCE", 2.0)
    blocks, block_gradients = gradients("numba", level, "soft", "exp", slope, tolerance=tolerance)
    assert tolerance < 0.1 or np.abs(blocks - level_scores("numba", level, "soft", "exp").numpy()).max() > 1e-3
    np.testing.assert_allclose(ours, blocks, rtol=0, atol=16 * EPS * level.wiring.n_trees)
    for name in PARAMETERS:
        largest = max(1.0, np.abs(block_gradients[name]).max(initial=0))
        np.testing.assert_allclose(our_gradients[name], block_gradients[name], rtol=0, atol=64 * EPS * largest)


def test_any_number_of_threads_gives_the_same_bits():
    level = level_case(seed=2, size=(37, 140), n_trees=11, max_depth=6)
    slope, results = slope_of(level), []
    for count in (1, 2, 5):
        with threads(count):
            results.append(gradients("numba", level, "soft", "exp", slope, tolerance=1e-3))
    for scores, slopes in results[1:]:
        np.testing.assert_array_equal(scores, results[0][0])
        for name in PARAMETERS:
            np.testing.assert_array_equal(slopes[name], results[0][1][name])


def test_trees_by_themselves_sum_to_the_level():
    level = level_case(seed=3, size=(9, 17), n_trees=5, max_depth=6)
    weights = level.split_weight, level.split_bias, level.vote_weight
    given = *weights, "soft", "exp", 1.0, 1e-3
    trees = list(cpu_level.tree_scores(level.values, level.reads, level.wiring, *given))
    assert len(trees) == 5
    whole = level_scores("numba", level, "soft", "exp", tolerance=1e-3)
    np.testing.assert_allclose(torch.stack(trees).sum(0), whole, rtol=0, atol=16 * EPS * 5)
    of_tree = torch.from_numpy(level.wiring.leaf_tree)[:, None]
    alone = replace(level, vote_weight=torch.where(of_tree == 3, level.vote_weight, 0))
    np.testing.assert_allclose(trees[3], level_scores("numba", alone, "soft", "exp", tolerance=1e-3), atol=16 * EPS)


def test_a_weight_that_is_not_a_number_shows():
    level = level_case(seed=3, size=(9, 17), n_trees=2)
    level.split_weight[0] = np.nan
    assert torch.isnan(level_scores("numba", level, "soft", "exp", tolerance=1e-3)).any()


def test_factoring_out_the_sharpness_loses_nothing():
    rng = np.random.default_rng(0)
    weight = (10 ** rng.uniform(-6, 6, (500, 3)) * rng.choice([-1, 1], (500, 3))).astype(np.float32)
    weight[7] = 0
    bias = rng.standard_normal(500).astype(np.float32)
    rest, threshold, sharpness = factored(weight, bias)
    np.testing.assert_array_equal(sharpness[:, None] * rest, weight)
    np.testing.assert_array_equal(-sharpness * threshold, bias)
    assert sharpness[7] == 1
    assert (np.exp2(np.round(np.log2(sharpness))) == sharpness).all()
