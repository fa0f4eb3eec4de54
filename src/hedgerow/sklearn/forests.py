"""Forests from scikit-learn, and back.

scikit-learn sends a sample left iff x <= t, where x is a float32 and t a float64; here it goes right iff x >= theta,
both float32. If theta is the smallest float32 above t, the two agree for every x, ties included.
"""

from typing import Any

import numpy as np

from hedgerow import extras
from hedgerow.errors import InputError, ModelError
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import MAX_DEPTH, MAX_TREES, Forest, ForestStack
from hedgerow.forest.grow import joined_trees
from hedgerow.images.array_checks import MAX_CLASSES
from hedgerow.images.classes import is_label
from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.cpu.grow import Grown

INFINITY = np.float32(np.inf)
SAME_SUM = 1e-3  # relative difference of the sums of two leaves' votes that rounding explains, half precision included


class TableError(InputError, ValueError):
    """A table that cannot be used; also a ValueError, because scikit-learn's tools expect one."""


def refuse_masked(*tables: Any) -> None:
    """Refuse masked values: NumPy and scikit-learn drop masks, and would use the values below them."""
    if any(np.ma.is_masked(table) for table in tables):
        raise TableError(
            "the table has masked values; fill them in, e.g. with X.filled(numpy.nan) and SimpleImputer, or leave out "
            "those rows."
        )


def table_channels(table: np.ndarray) -> np.ndarray:
    """(M,1,S) float32: a table (S,M) as an image of one row with one channel per column."""
    refuse_masked(table)
    array = np.asarray(table)
    try:
        # Directly to float32, as scikit-learn does: rounding twice could give another value. Overflow is refused below.
        with np.errstate(over="ignore"):
            columns = array.astype(np.float32) if array.dtype.kind in "buifO" else None
    except (TypeError, ValueError):
        columns = None
    if columns is None:
        raise TableError(
            "the table is not an array of numbers; encode its columns first, e.g. with OrdinalEncoder, or make it "
            "dense."
        )
    if columns.ndim != 2 or 0 in columns.shape:
        raise TableError(f"the table has shape {columns.shape}; give rows of samples and columns of features, (S,M).")
    channels = np.ascontiguousarray(columns.T[:, np.newaxis])
    is_bad = ~np.isfinite(channels)
    if is_bad.any():
        column, _, sample = np.argwhere(is_bad)[0]
        raise TableError(
            f"the table has {is_bad.sum()} value(s) that are missing (NaN), infinite or too large, the first in row "
            f"{sample}, column {column}; fill them in, e.g. with SimpleImputer, or leave out those rows."
        )
    return channels


def from_sklearn(model: Any, features: FeatureSet | None = None) -> Forest | ForestStack:
    """The forest of a fitted decision tree, random forest or extra-trees classifier; it makes the same decisions.

    features: None returns a forest over the columns of a table, with classes in the order of `model.classes_`. The
              features that the model was trained on, with one sample per pixel, return a ForestStack of one level for
              images
    If the model was trained with missing values, the result is for tables without missing values.

    >>> from sklearn.ensemble import RandomForestClassifier
    >>> grown = RandomForestClassifier(5, random_state=0).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [0, 1, 1])
    >>> hr.from_sklearn(grown).n_trees
    5
    """
    trees = _trees_of(model)
    if features is not None:
        classes = _whole_classes(model, features)
    forest = joined_trees([_nodes(tree, int(model.n_classes_)) for tree in trees], int(model.n_features_in_))
    forest.validate()
    if features is None:
        return forest
    unlabelled = next(value for value in (255, *range(-1, -1 - len(classes), -1)) if value not in classes)
    settings = {"from": f"scikit-learn's {type(model).__name__}"}
    return ForestStack(features, (forest,), classes, unlabelled, settings=settings)


def to_sklearn(forest: Forest | ForestStack) -> Any:
    """A RandomForestClassifier that gives the same probabilities; its counts of training samples are made up.

    Grown forests keep votes in half precision, so those of a leaf sum to one within 5e-4. For scikit-learn they are
    scaled to sum to one exactly, so its probabilities differ by at most 5e-4.
    A stack must have one level; the model then reads the stack's features, one row per pixel. The classes of a plain
    forest are 0, 1, ...

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> plain = hr.ContextConfig(window=1, n_offsets=0)  # scikit-learn's splits read the pixel itself
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2, context=plain))
    >>> hr.to_sklearn(stack).n_features_in_
    49
    """
    extras.require("sklearn", "to_sklearn")
    from sklearn.ensemble import RandomForestClassifier

    classes: tuple[int, ...] | None = None
    if isinstance(forest, ForestStack):
        if forest.n_levels != 1 or forest.output != "normalise":
            raise ModelError(
                f"a stack of {forest.n_levels} level(s) with output {forest.output!r} is more than one random forest; "
                "give a stack of one level that was not refined, or use export."
            )
        classes, forest = forest.classes, forest.levels[0]
    if not isinstance(forest, Forest):
        raise InputError(f"a {type(forest).__name__} was given to to_sklearn; give a Forest or a ForestStack.")
    channel = _plain_channels(forest)
    value = _shares(forest)
    ends = [*forest.root[1:], forest.n_nodes]
    model = RandomForestClassifier(n_estimators=forest.n_trees, max_depth=max(int(forest.tree_depths.max()), 1))
    model.estimators_ = [
        _tree(forest, slice(int(start), int(end)), int(depth), channel, value)
        for start, end, depth in zip(forest.root, ends, forest.tree_depths, strict=True)
    ]
    model.classes_ = np.arange(forest.n_classes) if classes is None else np.array(classes)
    model.n_classes_, model.n_outputs_, model.n_features_in_ = forest.n_classes, 1, forest.n_channels
    return model


def _trees_of(model: Any) -> list[Any]:
    """The fitted trees of a model; raises InputError if it cannot be used."""
    extras.require("sklearn", "from_sklearn")
    from sklearn import ensemble, tree
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__ if not isinstance(model, type) else f"class {model.__name__}"
    kinds = (tree.DecisionTreeClassifier, ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier)
    if not isinstance(model, kinds):
        raise InputError(
            f"a {name} was given to from_sklearn; give a fitted DecisionTreeClassifier, RandomForestClassifier or "
            "ExtraTreesClassifier (for a pipeline or a search, the forest inside it)."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise InputError(f"the {name} has not been fitted; call its fit(X, y) first.") from None
    if model.n_outputs_ != 1:
        raise InputError(f"the {name} predicts {model.n_outputs_} outputs at once; fit one model per output.")
    trees = list(getattr(model, "estimators_", [model]))
    deepest = max(int(each.tree_.max_depth) for each in trees)
    if deepest > MAX_DEPTH or len(trees) > MAX_TREES:
        raise InputError(
            f"the {name} has {len(trees):,} tree(s) with up to {deepest:,} splits on a path, expected at most "
            f"{MAX_TREES:,} trees with {MAX_DEPTH}; fit it with max_depth={MAX_DEPTH} or less, or with fewer trees."
        )
    return trees


def _whole_classes(model: Any, features: FeatureSet) -> tuple[int, ...]:
    """The model's classes as class values of labels; raises InputError if the model does not fit the features."""
    if model.n_features_in_ != features.n_features:
        raise InputError(
            f"the model was trained on {model.n_features_in_} columns, but there are {features.n_features} features; "
            "give the features that it was trained on."
        )
    classes = np.asarray(model.classes_)
    if classes.dtype.kind not in "iu":
        some = ", ".join(map(repr, classes[:3].tolist()))
        raise InputError(
            f"the model's classes are {some}, ...; label maps hold whole numbers, so train the model on whole numbers, "
            "e.g. with LabelEncoder."
        )
    if len(classes) < 2:
        raise InputError(f"the model knows only the class {classes[0]}; train it on at least two classes.")
    if len(classes) > MAX_CLASSES or not all(map(is_label, classes)):
        raise InputError(
            f"the model has {len(classes):,} classes, from {classes[0]} to {classes[-1]}; label maps hold at most "
            f"{MAX_CLASSES} classes of 32 bits each, so number them from 0."
        )
    return tuple(classes.tolist())


def _nodes(model: Any, n_classes: int) -> Grown:
    """The nodes of one scikit-learn tree, generation by generation; the two children of a node are neighbours."""
    tree = model.tree_
    left, right = tree.children_left, tree.children_right
    # A threshold of infinity separates missing values from all others, which go left.
    is_split = left != LEAF
    is_skipped = is_split & np.isposinf(tree.threshold)
    generation = np.array([0])
    generations, children, n_nodes = [], [], 1
    while len(generation):
        while is_skipped[generation].any():
            generation = np.where(is_skipped[generation], left[generation], generation)
        going_on = is_split[generation]
        child = np.full(len(generation), LEAF)
        child[going_on] = n_nodes + 2 * np.arange(going_on.sum())
        generations.append(generation)
        children.append(child)
        parents = generation[going_on]
        generation = np.stack([left[parents], right[parents]], axis=1).ravel()
        n_nodes += len(generation)
    order, left_child = np.concatenate(generations), np.concatenate(children)
    is_split = left_child != LEAF
    return Grown(
        left_child=left_child,
        threshold=np.where(is_split, _threshold(tree.threshold[order]), 0).astype(np.float32),
        plane=np.where(is_split, tree.feature[order], 0).astype(np.int32)[:, np.newaxis],
        offset=np.zeros((len(order), 1, 3), np.float32),
        weight=np.ones((len(order), 1), np.float32),
        counts=tree.value[order, 0, :n_classes],
    )


def _threshold(t: np.ndarray) -> np.ndarray:
    """The float32 theta for which x >= theta iff not x <= t, for every float32 x; t is float64."""
    nearest = t.astype(np.float32)
    floor = np.where(nearest > t, np.nextafter(nearest, -INFINITY), nearest)
    return np.nextafter(floor, INFINITY)


def _plain_channels(forest: Forest) -> np.ndarray:
    """(N,) the channel that each split reads; ModelError if a split reads anything but one value at its own pixel."""
    if forest.sharpness is not None:
        raise ModelError(
            "the splits of this forest are soft, and scikit-learn's are hard; map the network back with "
            "to_forest(net, images, 'leaf_mean') or 'weights'."
        )
    splits = forest.is_split
    used = (forest.weight != 0) & splits[:, np.newaxis]
    is_plain = (
        bool((used.sum(axis=1) == splits).all())
        and bool((forest.weight[used] == 1).all())
        and not forest.offset[used].any()
        and not forest.radius[used].any()
    )
    if not is_plain:
        raise ModelError(
            "splits of this forest read other pixels or sums, but those of scikit-learn read one column; grow it "
            "without context: ContextConfig(window=1, n_offsets=0, n_probes=1, radii=(0,))."
        )
    return forest.channel[np.arange(forest.n_nodes), used.argmax(axis=1)]


def _shares(forest: Forest) -> np.ndarray:
    """(L,C) float64 votes whose mean over the trees is the forest's output: those of each leaf sum to one."""
    votes = forest.votes.astype(np.float64)
    total = votes.sum(axis=1)
    if (votes < 0).any() or not np.allclose(total, total[0], rtol=SAME_SUM, atol=0) or total[0] <= 0:
        raise ModelError(
            "the votes of this forest are negative or do not have the same sum in all leaves, as after refinement, but "
            "scikit-learn averages probabilities; give a forest as it was grown, or use export."
        )
    return votes / total[:, np.newaxis]


def _tree(forest: Forest, nodes: slice, depth: int, channel: np.ndarray, value: np.ndarray) -> Any:
    """One tree as a DecisionTreeClassifier; the nodes of a Tree can only be set in the way that unpickling does."""
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.tree._tree import NODE_DTYPE, TREE_UNDEFINED, Tree

    is_split, left = forest.is_split[nodes], forest.left_child[nodes].astype(np.int64) - nodes.start
    table = np.zeros(len(left), NODE_DTYPE)
    table["left_child"] = np.where(is_split, left, LEAF)
    table["right_child"] = np.where(is_split, left + 1, LEAF)
    table["feature"] = np.where(is_split, channel[nodes], TREE_UNDEFINED)
    table["threshold"] = np.where(is_split, np.nextafter(forest.threshold[nodes], -INFINITY), TREE_UNDEFINED)
    # The counts are unknown; they are 1, so that a division by them gives a number.
    table["n_node_samples"] = table["weighted_n_node_samples"] = 1
    shares = np.full((len(left), 1, forest.n_classes), 1 / forest.n_classes)
    shares[~is_split, 0] = value[forest.leaf_index[nodes][~is_split]]
    tree = Tree(forest.n_channels, np.array([forest.n_classes], np.intp), 1)
    tree.__setstate__({"max_depth": depth, "node_count": len(table), "nodes": table, "values": shares})
    model = DecisionTreeClassifier()
    model.tree_, model.classes_ = tree, np.arange(forest.n_classes, dtype=np.float64)
    model.n_classes_, model.n_outputs_, model.n_features_in_ = forest.n_classes, 1, forest.n_channels
    model.max_features_ = forest.n_channels
    return model
