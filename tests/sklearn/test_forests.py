"""Forests from scikit-learn and back: the same decisions, ties included; what cannot be used is refused."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.features.registry import fit_features
from hedgerow.forest.arrays import MAX_DEPTH, Forest
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.images.array_checks import to_planes
from hedgerow.sklearn import forests
from hedgerow.sklearn.forests import table_channels
from helpers.forests import random_forest
from helpers.refusals import assert_one_sentence

ensemble = pytest.importorskip("sklearn.ensemble")
tree = pytest.importorskip("sklearn.tree")

MODELS = {
    "tree": lambda: tree.DecisionTreeClassifier(random_state=0),
    "extra tree": lambda: tree.ExtraTreeClassifier(random_state=0),
    "random forest": lambda: ensemble.RandomForestClassifier(7, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesClassifier(7, random_state=0),
    "best first": lambda: ensemble.RandomForestClassifier(3, max_leaf_nodes=9, random_state=0),
    "balanced": lambda: ensemble.RandomForestClassifier(3, class_weight="balanced", random_state=0),
}


def small_table(seed=0, n_samples=200):
    """(S,4) of a few values, 0 among them, so that columns are full of ties; and (S,) three classes."""
    rng = np.random.default_rng(seed)
    table = rng.integers(-3, 4, (n_samples, 4)) * np.array([0.1, 1.0, 1e-30, 1e30])
    return table, (table[:, 0] > table[:, 1]).astype(int) + (table[:, 2] > 0)


def hostile_table(model, seed=1):
    """Rows on the thresholds of the model's splits, just beside them, and anywhere."""
    rng = np.random.default_rng(seed)
    trees = getattr(model, "estimators_", [model])
    threshold = np.concatenate([each.tree_.threshold[each.tree_.feature >= 0] for each in trees])
    threshold = threshold[np.isfinite(threshold)]
    ties = rng.choice(threshold, (400, model.n_features_in_)).astype(np.float32)
    below, above = (np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf))
    return np.concatenate([ties, below, above, small_table(2)[0].astype(np.float32), 0 * ties, -0.0 * ties])


def forest_proba(forest, table):
    """(S,C)"""
    return run_forest(forest, whole_input(table_channels(table)))[:, 0, 0].T


@pytest.mark.parametrize("kind", MODELS)
def test_a_forest_decides_as_its_model_on_ties_too(kind):
    model = MODELS[kind]().fit(*small_table())
    forest = hr.from_sklearn(model)
    table = hostile_table(model)
    np.testing.assert_allclose(forest_proba(forest, table), model.predict_proba(table), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, np.float32, object])
def test_tables_are_rounded_as_scikit_learn_rounds_them(dtype):
    rng = np.random.default_rng(0)
    # Whole numbers that float32 cannot hold, where rounding twice may end elsewhere.
    wide = rng.integers(2**53, 2**62, (300, 3)) if dtype in (np.int64, object) else rng.integers(0, 9, (300, 3))
    table, classes = wide.astype(dtype), rng.integers(0, 2, 300)
    model = MODELS["tree"]().fit(table, classes)
    np.testing.assert_allclose(
        forest_proba(hr.from_sklearn(model), table), model.predict_proba(table), atol=1e-6, rtol=0
    )


def test_one_class_and_classes_of_words():
    table, classes = small_table()
    alone = hr.from_sklearn(MODELS["random forest"]().fit(table, np.full(len(table), "moss")))
    np.testing.assert_array_equal(forest_proba(alone, table), np.ones((len(table), 1)))
    model = MODELS["random forest"]().fit(table, np.array(["oak", "ash", "yew"])[classes])
    found = model.classes_[forest_proba(hr.from_sklearn(model), table).argmax(axis=1)]
    np.testing.assert_array_equal(found, model.predict(table))


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_knows_missing_values_is_right_where_there_are_none(kind):
    table, classes = small_table()
    # Whether a value is missing tells the class: splits of infinity, which no number passes.
    table[::3, 0] = np.nan
    classes[::3] = 2
    model = MODELS[kind]().fit(table, classes)
    trees = getattr(model, "estimators_", [model])
    if kind == "tree":
        assert np.isinf(trees[0].tree_.threshold).any()
    finite = hostile_table(model)
    np.testing.assert_allclose(
        forest_proba(hr.from_sklearn(model), finite), model.predict_proba(finite), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("kind", MODELS)
def test_there_and_back_gives_the_same_probabilities_and_thresholds(kind):
    model = MODELS[kind]().fit(*small_table())
    forest = hr.from_sklearn(model)
    back = hr.to_sklearn(forest)
    table = hostile_table(model)
    np.testing.assert_allclose(back.predict_proba(table), forest_proba(forest, table), atol=1e-6, rtol=0)
    np.testing.assert_array_equal(back.predict(table), forest_proba(forest, table).argmax(axis=1))
    again = hr.from_sklearn(back)
    for name in ("root", "left_child", "threshold", "channel", "leaf_index"):
        np.testing.assert_array_equal(getattr(again, name), getattr(forest, name))


def without_context(example, **changes):
    context = hr.ContextConfig(window=1, n_offsets=0)
    config = hr.StackConfig(n_levels=1, n_trees=3, max_depth=5, sigmas=(0.7,), context=context)
    return hr.fit_stack(example.images, example.labels, replace(config, **changes))


def pixels(stack, image):
    """(H*W,F): the features of an image, a row per pixel."""
    return stack.features.compute(to_planes(image)).reshape(stack.features.n_features, -1).T


def test_a_stack_without_context_goes_to_scikit_learn_with_its_classes(example):
    stack = without_context(example)
    model = hr.to_sklearn(stack)
    image = example.images[1]
    ours = stack.predict_proba(image).reshape(3, -1).T
    np.testing.assert_allclose(model.predict_proba(pixels(stack, image)), ours, atol=5e-4, rtol=0)
    assert model.classes_.tolist() == list(stack.classes)


def test_a_pixel_classifier_becomes_a_stack_that_predicts_images_and_can_be_saved(example, tmp_path):
    image, labels = example.images[0], example.labels[0]
    features, _ = fit_features([to_planes(image)], hr.StackConfig(sigmas=(0.7, 2.0)))
    planes = [features.compute(to_planes(each)).reshape(features.n_features, -1).T for each in example.images]
    model = MODELS["random forest"]().fit(planes[0], labels.ravel())
    stack = hr.from_sklearn(model, features)
    expected = model.predict_proba(planes[1]).T.reshape(3, *labels.shape)
    np.testing.assert_allclose(stack.predict_proba(example.images[1]), expected, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(stack.predict(example.images[1]).ravel(), model.predict(planes[1]))
    hr.save(stack, tmp_path / "model.hedge")
    np.testing.assert_array_equal(hr.load(tmp_path / "model.hedge").predict(image), stack.predict(image))
    assert stack.unlabelled not in stack.classes


def test_the_unlabelled_value_is_never_a_class(example):
    features, _ = fit_features([to_planes(example.images[0])], hr.StackConfig(features="channels"))
    model = MODELS["tree"]().fit([[0.0], [1.0]], [0, 255])
    assert hr.from_sklearn(model, features).unlabelled == -1


def fitted(kind="tree", classes=None):
    table, given = small_table()
    return MODELS[kind]().fit(table, given if classes is None else classes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tree.DecisionTreeRegressor().fit(*small_table()), ["DecisionTreeRegressor", "give a fitted"]),
        (lambda: ensemble.GradientBoostingClassifier(n_estimators=1).fit(*small_table()), ["GradientBoosting"]),
        (lambda: ensemble.RandomForestClassifier, ["class RandomForestClassifier", "give a fitted"]),
        (lambda: None, ["NoneType"]),
        (lambda: ensemble.RandomForestClassifier(), ["not been fitted", "fit(X, y)"]),
        (lambda: fitted("random forest", np.zeros((200, 2))), ["2 outputs", "one model per output"]),
    ],
    ids=["regressor", "boosting", "class", "none", "unfitted", "outputs"],
)
def test_other_models_are_refused(make, words):
    with pytest.raises(hr.InputError) as problem:
        hr.from_sklearn(make())
    assert_one_sentence(problem, *words)


def deep_model(depth):
    """A tree of one path: class after class in alternation."""
    table = np.arange(depth + 1)[:, np.newaxis].astype(float)
    weight = 4.0 ** -np.arange(depth + 1)  # what is first weighs more than all that follows
    return tree.DecisionTreeClassifier(random_state=0).fit(table, np.arange(depth + 1) % 2, sample_weight=weight)


def test_trees_as_deep_as_can_be_walked_are_taken_and_deeper_ones_refused():
    model = deep_model(100)
    assert 30 < model.get_depth() <= MAX_DEPTH
    table = np.linspace(-1, 102, 500)[:, np.newaxis]
    np.testing.assert_allclose(forest_proba(hr.from_sklearn(model), table), model.predict_proba(table), atol=1e-6)
    deeper = deep_model(300)
    assert deeper.get_depth() > MAX_DEPTH
    with pytest.raises(hr.InputError) as problem:
        hr.from_sklearn(deeper)
    assert_one_sentence(problem, f"{deeper.get_depth()} splits on a path", f"max_depth={MAX_DEPTH}")


def test_more_trees_than_a_model_may_have_are_refused(monkeypatch):
    monkeypatch.setattr(forests, "MAX_TREES", 6)
    with pytest.raises(hr.InputError) as problem:
        hr.from_sklearn(fitted("random forest"))
    assert_one_sentence(problem, "7 tree(s)", "fewer trees")


@pytest.mark.parametrize(
    ("classes", "n_channels", "words"),
    [
        (np.where(np.arange(200) % 2, 2**40, 0), 4, ["2 classes", "number them from 0"]),
        (None, 3, ["4 columns", "3 features"]),
        (np.array(["a", "b"])[np.arange(200) % 2], 4, ["'a', 'b'", "LabelEncoder"]),
        (np.zeros(200, int), 4, ["only the class 0", "two classes"]),
    ],
    ids=["large", "other features", "words", "one class"],
)
def test_a_pixel_classifier_must_fit_the_features_and_label_maps(classes, n_channels, words):
    image = np.zeros((n_channels, 2, 2), np.float32)
    features, _ = fit_features([image], hr.StackConfig(features="channels"))
    with pytest.raises(hr.InputError) as problem:
        hr.from_sklearn(fitted(classes=classes), features)
    assert_one_sentence(problem, *words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([[1.0, np.nan], [2.0, 3.0]], ["1 value", "row 0, column 1", "SimpleImputer"]),
        ([[1.0], [-np.inf]], ["row 1, column 0"]),
        ([[1e39]], ["too large"]),
        ([["a", "b"]], ["OrdinalEncoder"]),
        ([[None, object()]], ["OrdinalEncoder"]),
        ([1.0, 2.0], ["(2,)", "(S,M)"]),
        (np.zeros((0, 3)), ["(0, 3)"]),
    ],
)
def test_tables_that_cannot_be_used_are_refused(table, words):
    with pytest.raises(hr.InputError) as problem:
        table_channels(table)
    assert_one_sentence(problem, *words)


def plain_forest(**changes) -> Forest:
    forest = random_forest(np.random.default_rng(0), reach=0)
    return replace(forest, votes=forest.votes / forest.votes.sum(axis=1, keepdims=True), **changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: random_forest(np.random.default_rng(0), reach=3), ["other pixels", "ContextConfig"]),
        (lambda: random_forest(np.random.default_rng(0), reach=0, reach_z=1), ["other pixels", "ContextConfig"]),
        (lambda: random_forest(np.random.default_rng(0), reach=0, radii=(2,)), ["other pixels"]),
        (lambda: random_forest(np.random.default_rng(0), reach=0, n_probes=2), ["sums"]),
        (lambda: replace(plain_forest(), weight=-plain_forest().weight), ["sums"]),
        (lambda: random_forest(np.random.default_rng(0), reach=0), ["do not have the same sum"]),
        (lambda: replace(plain_forest(), votes=-plain_forest().votes), ["negative"]),
        (lambda: replace(plain_forest(), sharpness=np.ones(plain_forest().n_nodes, np.float32)), ["soft", "to_forest"]),
    ],
    ids=["offsets", "slices", "boxes", "probes", "weights", "sums", "negative", "soft"],
)
def test_forests_that_scikit_learn_cannot_hold_are_refused(make, words):
    hr.to_sklearn(plain_forest())
    with pytest.raises(hr.ModelError) as problem:
        hr.to_sklearn(make())
    assert_one_sentence(problem, *words)


def test_stacks_of_several_levels_and_other_things_are_refused(stack, example):
    for given in (stack, replace(without_context(example), output="softmax")):
        with pytest.raises(hr.ModelError) as problem:
            hr.to_sklearn(given)
        assert_one_sentence(problem, f"{given.n_levels} level", given.output)
    with pytest.raises(hr.InputError) as problem:
        hr.to_sklearn("a forest")
    assert_one_sentence(problem, "str", "give a Forest")


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(hr.HedgerowError) as problem:
        hr.to_sklearn(plain_forest())
    assert_one_sentence(problem, "needs sklearn", ".[sklearn]")
