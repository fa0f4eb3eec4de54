"""The network of one level: the definition against the paper, by brute force, and the fused kernels against it."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.errors import ConfigError
from hedgerow.kernels.constants import CPU_GENERATIONS, UNUSED
from hedgerow.kernels.definition import forest as plain
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import places
from helpers.leaf_paths import leaf_paths
from helpers.net_cases import (
    BACKENDS,
    CASES,
    EPS,
    KINDS,
    PARAMETERS,
    SMOOTH,
    assert_agrees,
    assert_only_what_trains_has_a_gradient,
    fitting,
    gradients,
    leaf_activations,
    level_case,
    level_scores,
    magnitudes,
    precise,
    slope_of,
)


def by_tree(level, activations):
    """Sums (T,S) of leaf activations (L,S)."""
    return np.stack([activations[level.wiring.leaf_tree == t].sum(axis=0) for t in range(level.wiring.n_trees)])


def test_cases_hold_what_they_promise():
    parities, cases = set(), {name: level_case(**case) for name, case in CASES.items()}
    for level in cases.values():
        parities |= set((np.bincount(level.wiring.leaf_tree) % 2).tolist())
    assert parities == {0, 1}
    assert (cases["unused probes"].reads.place == UNUSED).any()
    assert cases["leaves alone"].wiring.n_splits == 0
    deepest = level_case(seed=5, **CASES["three pieces"]).wiring.path_length.max()
    assert 2 * CPU_GENERATIONS < deepest <= 3 * CPU_GENERATIONS
    assert len(np.unique(cases["deep"].wiring.path_length)) > 4
    assert (np.bincount(cases["some trees are a leaf"].wiring.leaf_tree) == 1).any()


def brute_force(level, split, activation, alpha):
    """Scores (C,S) in float64, equation by equation: for every pixel and leaf, the path from the root."""
    forest, paths, channels = level.forest, leaf_paths(level.forest), level.channels.astype(np.float64)
    weight, bias, votes = (
        t.numpy().astype(np.float64) for t in (level.split_weight, level.split_bias, level.vote_weight)
    )
    number = {int(node): n for n, node in enumerate(np.flatnonzero(forest.is_split))}
    tree_of_leaf = np.searchsorted(forest.root, np.flatnonzero(~forest.is_split), side="right") - 1
    context = {"stretch": level.source.stretch, "outside": level.source.outside}

    def z(node, place):  # the paper's z_H1(n), its weights in place of the forest's
        total = bias[number[node]]
        for j in range(weight.shape[1]):
            one = replace(forest, **{n: getattr(forest, n)[:, j : j + 1] for n in ("channel", "offset", "radius")})
            one = replace(one, weight=(forest.weight[:, j : j + 1] != 0).astype(np.float32))
            total += weight[number[node], j] * plain.split_value(one, node, channels, place, **context)
        return total

    scores = []
    for place in np.ndindex(*level.grid.size):
        leaves = np.zeros(forest.n_leaves)
        for leaf in range(forest.n_leaves):
            steps = range(paths.start[leaf], paths.start[leaf + 1])
            inputs = [(z(int(paths.node[s]), place), int(paths.sign[s])) for s in steps]
            if split == "hard":
                leaves[leaf] = all((x >= 0) == (sign > 0) for x, sign in inputs)
            elif split == "tanh":
                into = sum(sign * alpha * np.tanh(x) for x, sign in inputs) - alpha * (len(inputs) - 1)
                leaves[leaf] = 1 / (1 + np.exp(-into))
            elif split == "soft":
                leaves[leaf] = np.prod([1 / (1 + np.exp(-sign * x)) for x, sign in inputs])
            else:
                leaves[leaf] = np.exp(alpha * sum(min(sign * x, 0.0) for x, sign in inputs))
        if activation == "softmax":
            for t in range(forest.n_trees):
                leaves[tree_of_leaf == t] /= leaves[tree_of_leaf == t].sum()
        scores.append(votes.T @ leaves)
    return np.stack(scores, axis=1)


@pytest.mark.parametrize("block_values", [2**25, 40])
def test_the_entropy_of_leaf_membership_is_that_of_its_leaves(monkeypatch, block_values):
    monkeypatch.setattr(definition, "BLOCK_VALUES", block_values)  # blocks of pixels change nothing
    level = precise(level_case(size=(5, 7), n_trees=3, max_depth=4))
    given = [getattr(level, name).clone().requires_grad_() for name in ("values", "split_weight", "split_bias")]
    values, *weights = given
    edges = [edge.double() for edge in definition.mapped_edges(level.wiring, "soft", 1.0)]
    entropy = definition.leaf_entropy(values, level.reads, level.wiring, *weights, *edges)
    membership = torch.from_numpy(leaf_activations("reference", level, "soft", "exp"))
    expected = torch.special.entr(membership).sum(dim=0, keepdim=True)
    torch.testing.assert_close(entropy.detach(), expected)
    assert 0 < float(expected.max()) <= level.wiring.n_trees * np.log(level.wiring.n_leaves)
    step, (gradient, *_) = 1e-6, torch.autograd.grad(entropy.sum(), given)
    place = int(gradient.abs().argmax())
    moved = values.detach().clone()
    moved[place] += step
    with torch.no_grad():
        risen = definition.leaf_entropy(moved, level.reads, level.wiring, *weights, *edges).sum() - entropy.sum()
    assert float(risen) / step == pytest.approx(float(gradient[place]), rel=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize(
    "case",
    [
        {"size": (1, 1)},
        {"size": (3, 4), "n_probes": 2, "unused": True},
        {"size": (3, 2, 2), "reach_z": 3, "n_probes": 2},
        {"size": (4, 3), "stretched": True, "n_probes": 2, "unused": True},
        {"size": (2, 2), "n_trees": 6, "leaf_chance": 0.6},
    ],
)
def test_scores_equal_the_paper_by_brute_force(backend, split, activation, case):
    level = level_case(max_depth=3, **{"n_trees": 2, **case})
    alpha = 1.0 if split == "soft" else 2.5
    expected = brute_force(level, split, activation, alpha)
    scores = level_scores(backend, fitting(backend, level), split, activation, alpha).numpy()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12 if backend == "reference" else 32 * EPS)


@pytest.mark.parametrize(("split", "activation"), SMOOTH)
@pytest.mark.parametrize("case", ["probes", "stretched", "full"])
def test_gradients_of_the_definition_are_right(split, activation, case):
    level = precise(
        level_case(
            seed=3, size=(2, 2), n_trees=2, max_depth=2, leaf_chance=0.1, n_probes=2, unused=True, reach=1,
            n_classes=2, n_carried=1, sharpness=1.0, stretched=case == "stretched",
        )
    )  # fmt: skip
    edges, bias = (edge.double() for edge in definition.mapped_edges(level.wiring, split, 1.3))
    edges = edges + 0.1 * torch.randn(edges.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if case == "full":
        rows = (1 if split == "tanh" else 2) * level.wiring.n_splits
        full = torch.randn(rows, level.wiring.n_leaves, generator=torch.Generator().manual_seed(0))
        edges = 0.3 * full.double()
    if split == "crelu":  # which has a kink
        index = torch.as_tensor(places(level.reads, 0, 4))
        z = definition.split_input(level.values, index, level.split_weight, level.split_bias)
        assert z.abs().min() > 1e-4
    tensors = (level.values, level.split_weight, level.split_bias, edges, bias, level.vote_weight)

    def scores(values, split_weight, split_bias, leaf_weight, leaf_bias, vote_weight):
        return definition.level_scores(
            values, level.reads, level.wiring, split_weight, split_bias, leaf_weight, leaf_bias, vote_weight,
            split, activation,
        )  # fmt: skip

    assert torch.autograd.gradcheck(scores, [tensor.clone().requires_grad_() for tensor in tensors])


@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_the_definition(case, split, activation):
    level = level_case(seed=5, **CASES[case])
    assert_agrees("numba", level, split, activation)
    if split != "hard":
        assert_agrees("numba", level.with_features, split, activation)


@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
@pytest.mark.parametrize(("split", "activation"), KINDS)
@pytest.mark.parametrize("case", [{}, {"n_probes": 2, "radii": (0, 2)}, {"step": 3, "corner": (1, 2)}])
def test_without_offsets_in_z_a_volume_is_its_slices_one_by_one(case, split, activation, tolerance):
    level = level_case(size=(3, 9, 17), sharpness=8.0, **case)
    whole = level_scores("numba", level, split, activation, 1.0, tolerance).reshape(3, 3, -1)
    for z in range(3):
        source, grid = level.source, replace(level.grid, depth=1)
        image = replace(source, features=source.features[:, z : z + 1], before=source.before[:, z : z + 1], known=grid)
        one = replace(level, source=image).on(grid)
        found = level_scores("numba", one, split, activation, 1.0, tolerance)
        np.testing.assert_array_equal(found, whole[:, z])


def test_only_what_trains_has_a_gradient():
    assert_only_what_trains_has_a_gradient("numba", level_case(size=(9, 17)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stretched", [False, True])
def test_hard_splits_have_no_gradient_for_features_and_say_so(backend, stretched):
    level = level_case(size=(3, 4), stretched=stretched)
    source = replace(level.source, features=level.source.features.clone().requires_grad_())
    with pytest.raises(ConfigError, match="hard splits"):
        level_scores(backend, replace(level, source=source).on(level.grid), "hard", "step")
    source = replace(level.source, before=level.source.before.clone().requires_grad_())
    scores = level_scores(backend, replace(level, source=source).on(level.grid), "hard", "step")
    assert torch.isfinite(scores).all(), "the level before may train: its votes do"


@pytest.mark.parametrize(("split", "activation"), SMOOTH)
@pytest.mark.parametrize(
    "case",
    ["windows", "every third pixel", "stretched lattice", "first level", "far outside", "slices, every third pixel"],
)
def test_gradients_reach_the_features_themselves(case, split, activation):
    """Through `lay_out`, against the definition in float64; the plans of both ways are kept with one wiring."""
    level = level_case(seed=5, **CASES[case])
    slope, gradients = slope_of(level), {}
    for backend, dtype in (("reference", torch.float64), ("reference", torch.float32), ("numba", torch.float32)):
        features = level.source.features.to(dtype, copy=True).requires_grad_()
        before = None if level.source.before is None else level.source.before.to(dtype, copy=True).requires_grad_()
        reading = level if dtype == torch.float32 else precise(level)
        reading = replace(reading, source=replace(level.source, features=features, before=before)).on(level.grid)
        assert reading.reads.features_train
        level_scores(backend, reading, split, activation).backward(slope.to(dtype))
        gradients[backend, dtype] = [tensor.grad.numpy() for tensor in (features, before) if tensor is not None]
    floor = magnitudes(level, slope)["values"] * (2 + int(level.wiring.path_length.max())) * EPS
    for exact, plain32, ours in zip(*gradients.values(), strict=True):
        assert np.abs(exact).max() > 0.01
        assert np.abs(ours - exact).max() <= 3 * np.abs(plain32 - exact).max() + floor
    again = level.on(level.grid)
    assert not again.reads.features_train, "what is kept for one way is not taken for the other"
    assert again.reads.first_trained == again.reads.carried


def test_blocks_of_the_definition_do_not_change_it(monkeypatch):
    level = precise(level_case(n_probes=2))
    slope = slope_of(level)
    whole, whole_gradients = gradients("reference", level, "soft", "exp", slope)
    monkeypatch.setattr(definition, "BLOCK_VALUES", 17 * len(level.wiring.edge_leaf))
    parts, part_gradients = gradients("reference", level, "soft", "exp", slope)
    np.testing.assert_allclose(parts, whole, atol=1e-14)
    for name in PARAMETERS:
        np.testing.assert_allclose(part_gradients[name], whole_gradients[name], atol=1e-12, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("split", "activation"), [kind for kind in KINDS if kind[0] != "tanh"])
def test_memberships_of_a_tree_sum_to_one(backend, split, activation):
    level = level_case(n_trees=6, max_depth=6, leaf_chance=0.3, size=(9, 17))
    activations = leaf_activations(backend, level, split, activation)
    assert activations.min() >= 0
    assert activations.max() <= 1 + 4 * EPS
    np.testing.assert_allclose(by_tree(level, activations), 1, atol=32 * EPS)
    ones = replace(level, vote_weight=torch.ones(level.wiring.n_leaves, 2))
    summed = level_scores(backend, fitting(backend, ones), split, activation).numpy()
    np.testing.assert_allclose(summed, level.wiring.n_trees, rtol=32 * EPS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_leaf_input_is_alpha_at_the_true_leaf_and_at_most_minus_alpha_elsewhere(backend, alpha):
    """With saturated splits: the paper's "equal to 1 if x in X_l, and less than or equal to -1 otherwise"."""
    level = level_case(size=(5, 6), n_trees=4, max_depth=4, sharpness=1e5)
    activations = leaf_activations(backend, level, "tanh", "sigmoid", alpha)
    true = np.zeros(activations.shape, bool)
    for s, (row, column) in enumerate(np.ndindex(5, 6)):
        for tree in range(4):
            true[plain.leaf_of(level.forest, tree, level.channels, (0, row, column)), s] = True
    assert true.sum() == 4 * 30
    np.testing.assert_allclose(activations[true], 1 / (1 + np.exp(-alpha)), atol=4 * EPS)
    assert activations[~true].max() <= 1 / (1 + np.exp(alpha)) + 4 * EPS


@pytest.mark.parametrize("n_probes", [1, 3])
def test_hard_kernels_decide_as_the_definition_where_values_meet_thresholds(n_probes):
    level = level_case(size=(16, 33), n_trees=6, max_depth=6, n_probes=n_probes, sharpness=1.0)
    index = torch.as_tensor(places(level.reads, 0, 16 * 33))
    nothing = torch.zeros_like(level.split_bias)
    value = definition.split_input(level.values, index, level.split_weight, nothing)
    pixel = torch.randint(0, 16 * 33, (len(value),), generator=torch.Generator().manual_seed(0))
    level = replace(level, split_bias=-value[torch.arange(len(value)), pixel])
    level = replace(level, vote_weight=torch.eye(level.wiring.n_leaves))
    # The definition in float32 as well, where the ties are.
    expected = level_scores("reference", level, "hard", "step")
    np.testing.assert_array_equal(level_scores("numba", level, "hard", "step"), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("split", "activation"), KINDS)
def test_sharp_networks_choose_the_forests_leaf(backend, split, activation):
    level = level_case(size=(5, 6), max_depth=4, sharpness=1.0 if split == "hard" else 1e5)
    activations = leaf_activations(backend, level, split, activation, 1.0 if split == "soft" else 30.0)
    for s, (row, column) in enumerate(np.ndindex(5, 6)):
        for tree in range(level.wiring.n_trees):
            leaf = plain.leaf_of(level.forest, tree, level.channels, (0, row, column))
            np.testing.assert_allclose(activations[leaf, s], 1, atol=1e-6)
    np.testing.assert_allclose(activations.sum(axis=0), level.wiring.n_trees, atol=1e-5)


@pytest.mark.parametrize(("split", "activation"), KINDS)
def test_a_single_probe_may_be_unused(split, activation):
    level = level_case(size=(9, 17), unused=True)
    assert (level.reads.place == UNUSED).any()
    level = replace(level, split_weight=level.split_weight + 1)  # a weight that counts for nothing
    exact = level_scores("reference", precise(level), split, activation).numpy()
    ours = level_scores("numba", level, split, activation).numpy()
    np.testing.assert_allclose(ours, exact, atol=1e-5)
