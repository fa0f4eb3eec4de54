"""The GPU's kernels for one level against the definition: on a GPU with --device cuda, else by Triton's interpreter."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed")

from hedgerow.errors import ConfigError
from hedgerow.kernels.gpu import level as gpu_level
from hedgerow.network.layout import Grid
from helpers.net_cases import (
    CASES,
    EPS,
    KINDS,
    PARAMETERS,
    SMOOTH,
    assert_agrees,
    assert_only_what_trains_has_a_gradient,
    gradients,
    level_case,
    level_scores,
    moved,
    precise,
    slope_of,
)

# What the interpreter, which is slow, is given; a GPU is given everything.
INTERPRETED = (
    "one pixel", "one row", "less than a block", "leaves alone", "some trees are a leaf", "unused probes",
    "every third pixel", "stretched lattice", "first level, every third pixel", "first level, stretched",
    "three slices", "slices, every third pixel", "first level of one column",
)  # fmt: skip
SMALL = {"size": (5, 37), "n_trees": 2, "max_depth": 5}
# It is given every kind of split in some cases, nearly all with soft splits, and the rest when there is time.
EVERY_KIND = ("one pixel",)
LARGEST = "first level, stretched"


def with_marks(case, split, activation):
    is_quick = (
        case not in INTERPRETED or case in EVERY_KIND or ((split, activation) == ("soft", "exp") and case != LARGEST)
    )
    return pytest.param(case, split, activation, marks=[] if is_quick else pytest.mark.slow)


def first(kinds):
    """Of kinds of split the two that most networks have are tested always, the rest when there is time."""
    return [
        kind if kind in (("hard", "step"), ("soft", "exp")) else pytest.param(*kind, marks=pytest.mark.slow)
        for kind in kinds
    ]


@pytest.fixture(autouse=True)
def _needs_kernels(gpu):
    pass


@pytest.mark.parametrize(("case", "split", "activation"), [with_marks(case, *kind) for case in CASES for kind in KINDS])
def test_kernels_agree_with_the_definition(gpu, case, split, activation):
    if gpu == "cpu" and case not in INTERPRETED:
        pytest.skip("too large for Triton's interpreter")
    level = level_case(seed=5, **CASES[case])
    assert_agrees("triton", level if split == "hard" else level.with_features, split, activation, gpu)


def test_only_what_trains_has_a_gradient(gpu):
    assert_only_what_trains_has_a_gradient("triton", level_case(**SMALL), gpu)


def test_hard_splits_have_no_gradient_for_features_and_say_so(gpu):
    level = moved(level_case(size=(3, 4)), gpu)
    with pytest.raises(ConfigError, match="hard splits"):
        level_scores("triton", level.with_features, "hard", "step")


@pytest.mark.parametrize(("split", "activation"), KINDS)
def test_more_classes_than_one_run_takes(gpu, split, activation):
    level = level_case(size=(3, 5), n_trees=1, max_depth=3, leaf_chance=0, n_classes=70)
    assert_agrees("triton", level, split, activation, gpu)


@pytest.mark.parametrize("n_probes", [1, 3])
def test_hard_kernels_decide_as_the_definition_where_values_meet_thresholds(gpu, n_probes):
    from hedgerow.kernels.definition import level as definition
    from hedgerow.kernels.wiring import places

    level = level_case(size=(4, 33), n_trees=3, max_depth=5, n_probes=n_probes, sharpness=1.0)
    index = torch.as_tensor(places(level.reads, 0, 4 * 33))
    value = definition.split_input(level.values, index, level.split_weight, torch.zeros_like(level.split_bias))
    pixel = torch.randint(0, 4 * 33, (len(value),), generator=torch.Generator().manual_seed(0))
    level = replace(level, split_bias=-value[torch.arange(len(value)), pixel])
    votes = torch.eye(level.wiring.n_leaves)
    expected = level_scores("reference", replace(level, vote_weight=votes), "hard", "step")
    found = level_scores("triton", moved(replace(level, vote_weight=votes), gpu), "hard", "step")
    np.testing.assert_array_equal(found.cpu(), expected)


@pytest.mark.parametrize(("split", "activation"), first([("soft", "exp"), ("crelu", "softmax")]))
def test_what_is_left_out_is_what_the_cpu_leaves_out(gpu, split, activation):
    level = level_case(**SMALL, leaf_chance=0.1, sharpness=8.0)
    slope = slope_of(level)
    for tolerance in (1e-3, 1e-2):
        ours, results = gradients("triton", moved(level, gpu), split, activation, slope, tolerance=tolerance)
        without_tolerance, expected = gradients("numba", level, split, activation, slope, tolerance=tolerance)
        np.testing.assert_allclose(ours, without_tolerance, atol=64 * EPS)
        for name in PARAMETERS:
            np.testing.assert_allclose(results[name], expected[name], atol=1e-4 * np.abs(expected[name]).max())
    whole = level_scores("numba", level, split, activation).numpy()
    assert np.abs(without_tolerance - whole).max() > 1e-4, "nothing was left out: the test is empty"


@pytest.mark.parametrize("together", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
@pytest.mark.parametrize(("split", "activation"), KINDS)
def test_trees_by_themselves(gpu, monkeypatch, split, activation, together):
    level = moved(level_case(size=(3, 21), n_trees=3, max_depth=4, sharpness=8.0, n_classes=66), gpu)
    monkeypatch.setattr(gpu_level, "MOST_BYTES", together * 4 * 66 * 3 * 21)
    given = level.split_weight, level.split_bias, level.vote_weight, split, activation, 1.0, 0.0
    trees = list(gpu_level.tree_scores(level.values, level.reads, level.wiring, *given))
    assert len(trees) == 3
    for root, found in zip(level.wiring.root, trees, strict=True):
        alone = replace(level, wiring=replace(level.wiring, root=np.array([root])))
        np.testing.assert_array_equal(found.cpu(), level_scores("triton", alone, split, activation).cpu())


def test_trees_of_a_volume_by_themselves(gpu):
    level = moved(level_case(size=(3, 2, 5), n_trees=3, max_depth=4, reach_z=1, sharpness=8.0), gpu)
    given = level.split_weight, level.split_bias, level.vote_weight, "soft", "exp", 1.0, 0.0
    trees = list(gpu_level.tree_scores(level.values, level.reads, level.wiring, *given))
    whole = level_scores("triton", level, "soft", "exp")
    np.testing.assert_allclose(sum(trees).cpu(), whole.cpu(), atol=8 * EPS * float(whole.abs().max()))


@pytest.mark.parametrize(("split", "activation"), SMOOTH)
def test_a_pixel_does_not_depend_on_its_tile(gpu, split, activation):
    level = level_case(size=(9, 40), n_trees=2, max_depth=5, sharpness=8.0)
    whole = level_scores("triton", moved(level, gpu), split, activation).reshape(3, 9, 40)
    for top, left, height, width in ((0, 0, 1, 1), (3, 5, 5, 34), (8, 39, 1, 1)):
        part = level_scores("triton", moved(level.on(Grid(top, left, height, width)), gpu), split, activation)
        expected = whole[:, top : top + height, left : left + width]
        np.testing.assert_array_equal(part.reshape(3, height, width).cpu(), expected.cpu())


@pytest.mark.parametrize("case", [SMALL, {"size": (3, 3, 5), "n_trees": 2, "reach_z": 1}], ids=["image", "volume"])
@pytest.mark.parametrize(("split", "activation"), first(SMOOTH))
def test_deterministic_gradients_are_the_same_twice_and_right(gpu, split, activation, case):
    level = level_case(**case).with_features
    slope = slope_of(level)
    _, expected = gradients("reference", precise(level), split, activation, slope)
    torch.use_deterministic_algorithms(True)
    try:
        runs = [gradients("triton", moved(level, gpu), split, activation, slope)[1] for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    for name in PARAMETERS:
        np.testing.assert_array_equal(runs[0][name], runs[1][name], err_msg=name)
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(runs[0][name], expected[name], atol=64 * EPS * largest, err_msg=name)


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_trees_that_keep_little_of_a_pixel_are_normalised_all_the_same(gpu, is_deterministic):
    level = level_case(size=(1, 2), n_trees=1, max_depth=4, leaf_chance=0, n_classes=63)
    bias = torch.zeros_like(level.split_bias)
    bias[-1] = 2.2  # of sixteen leaves one is reached by more than a tenth of the tree's mass
    votes = 1 + 0.01 * torch.rand(level.vote_weight.shape, generator=torch.Generator().manual_seed(0))
    level = replace(level, split_weight=level.split_weight * 0, split_bias=bias, vote_weight=votes)
    slope = torch.ones(63, 2)
    _, expected = gradients("numba", level, "soft", "softmax", slope, tolerance=0.1)
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        _, results = gradients("triton", moved(level, gpu), "soft", "softmax", slope, tolerance=0.1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.abs(expected["vote_weight"]).max() > 0.9, "no leaf has all that is left of a pixel: the test is empty"
    for name in PARAMETERS:
        np.testing.assert_allclose(results[name], expected[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("of_votes", [30, -30])
@pytest.mark.parametrize(("split", "activation"), first(SMOOTH))
def test_operands_of_any_magnitude_keep_their_digits(gpu, split, activation, of_votes):
    level = moved(level_case(**{**SMALL, "size": (2, 37)}), gpu)
    slope = slope_of(level)
    expected, expected_gradients = gradients("triton", level, split, activation, slope)
    other = replace(level, vote_weight=level.vote_weight * 2.0**of_votes)
    found, found_gradients = gradients("triton", other, split, activation, slope * 2.0**-60)
    np.testing.assert_array_equal(found, expected * 2.0**of_votes)
    for name in PARAMETERS:
        right = expected_gradients[name] * 2.0 ** (-60 if name == "vote_weight" else of_votes - 60)
        np.testing.assert_allclose(found_gradients[name], right, atol=8 * EPS * np.abs(right).max(), err_msg=name)


@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_gradients_of_what_is_not_finite_are_not_hidden(gpu, wrong):
    level = moved(level_case(size=(2, 3), n_trees=1, leaf_chance=0.0, max_depth=4), gpu)
    slope = slope_of(level)
    slope[0, 0] = wrong
    _, found = gradients("triton", level, "soft", "exp", slope)
    assert np.isnan(found["vote_weight"]).all()
    assert np.isnan(found["split_bias"]).all()


class PoisonedTorch:
    """PyTorch, but memory that nobody has written holds NaN."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def empty(shape, **options):
        return torch.full(shape, torch.nan, **options)


@pytest.mark.parametrize(("split", "activation"), first(KINDS))
def test_every_number_is_written_before_it_is_read(gpu, monkeypatch, split, activation):
    level = moved(level_case(**SMALL), gpu)
    slope = slope_of(level)
    expected, expected_gradients = gradients("triton", level, split, activation, slope)
    monkeypatch.setattr(gpu_level, "torch", PoisonedTorch())
    found, found_gradients = gradients("triton", level, split, activation, slope)
    np.testing.assert_array_equal(found, expected)
    for name in PARAMETERS:
        np.testing.assert_allclose(found_gradients[name], expected_gradients[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["split_weight", "split_bias", "vote_weight"])
@pytest.mark.parametrize(("split", "activation"), SMOOTH)
def test_not_a_number_is_not_hidden(gpu, split, activation, name):
    level = level_case(size=(2, 3), n_trees=1, leaf_chance=0.0, max_depth=4)
    broken = getattr(level, name).clone()
    broken[0] = torch.nan
    scores = level_scores("triton", moved(replace(level, **{name: broken}), gpu), split, activation)
    assert torch.isnan(scores).any(dim=0).all()


@pytest.mark.parametrize(("split", "activation"), KINDS)
def test_extreme_inputs_give_finite_scores_and_gradients(gpu, split, activation):
    level = moved(level_case(size=(3, 4), sharpness=1e7, max_depth=5, n_trees=2), gpu)
    scores, given = gradients("triton", level, split, activation, slope_of(level), 1.0 if split == "soft" else 100.0)
    assert np.isfinite(scores).all()
    assert all(np.isfinite(gradient).all() for gradient in given.values())
