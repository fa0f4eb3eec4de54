"""The neural forest of a table: a good scikit-learn citizen, the forest at its start, better after refinement."""

import pickle

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.sklearn.forests import table_channels
from hedgerow.threads import threads
from helpers.refusals import assert_one_sentence

pytest.importorskip("sklearn")
pytest.importorskip("torch")
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_gaussian_quantiles
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from hedgerow import NeuralForestClassifier
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import reached_leaves
from hedgerow.network.layout import Grid, Source
from hedgerow.network.mapback import weights_back

QUICK = {"n_trees": 3, "max_depth": 4, "epochs": 5, "random_state": 0}


@parametrize_with_checks([NeuralForestClassifier(n_trees=2, max_depth=3, epochs=2)])
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def shells():
    """A table (S,6) whose three classes are shells around 0, which few trees cut well; and an unseen one."""
    table, classes = make_gaussian_quantiles(n_samples=900, n_features=6, n_classes=3, random_state=0)
    return table[:600], classes[:600], table[600:], classes[600:]


@pytest.fixture(scope="module")
def refined(shells):
    return NeuralForestClassifier(random_state=0).fit(*shells[:2])


def accuracy(proba, classes):
    return np.mean(proba.argmax(axis=1) == classes)


def test_refinement_and_its_map_back_are_better_than_the_forest(refined, shells):
    unseen, classes = shells[2:]
    forest = accuracy(refined.forest_proba(unseen), classes)
    assert refined.score(unseen, classes) > forest + 0.1
    for method in ("leaf_mean", "fitted"):
        assert accuracy(refined.forest_proba(unseen, refined.to_forest(method)), classes) > forest + 0.03


def test_fitted_votes_say_of_the_training_samples_what_the_network_says(refined, shells):
    table, mean, fitted = shells[0], refined.to_forest(), refined.to_forest("fitted")
    said = refined.predict_proba(table)
    lost = [-(said * np.log(refined.forest_proba(table, each))).sum(axis=1).mean() for each in (mean, fitted)]
    assert lost[1] < lost[0]


def test_the_soft_forest_is_the_network(refined, shells):
    proba = refined.predict_proba(shells[2])
    soft = refined.forest_proba(shells[2], refined.to_forest("soft"))
    np.testing.assert_allclose(soft, proba, atol=1e-5, rtol=0)


def test_leaf_means_are_those_of_the_training_samples(shells):
    table, classes = shells[0][:100], shells[1][:100]
    model = NeuralForestClassifier(**QUICK).fit(table, classes)
    level, mapped = model.network_.level(0), model.to_forest()
    planes = mapped.features.compute(table_channels(table))
    with torch.no_grad():
        said = list(level.tree_scores(Source(torch.from_numpy(planes[:, None])), Grid(0, 0, 1, len(table))))
    expected = weights_back(level).votes.copy()
    for leaves, scores in zip(reached_leaves(weights_back(level), whole_input(planes)), said, strict=True):
        for leaf in np.unique(leaves):
            expected[leaf] = scores.numpy()[:, leaves == leaf].mean(axis=1)
    np.testing.assert_allclose(mapped.levels[0].votes, expected, atol=1e-5)


def test_sharp_splits_that_are_not_trained_say_what_the_forest_says(shells):
    table, classes = shells[:2]
    sharp = hr.Sharpness(1e5, 1.0, 1.0)
    model = NeuralForestClassifier(**{**QUICK, "epochs": 0}, sharpness=sharp).fit(table, classes)
    same = model.predict_proba(table).argmax(axis=1) == model.forest_proba(table).argmax(axis=1)
    assert same.mean() > 0.99
    # Without training, Map Back 1 is the forest: the same votes, before softmax.
    np.testing.assert_array_equal(model.to_forest("weights").levels[0].threshold, model.forest_.levels[0].threshold)


@pytest.mark.parametrize("split", ["soft", "tanh", "crelu"])
def test_every_kind_of_split_learns(split, shells):
    model = NeuralForestClassifier(n_trees=8, epochs=15, split=split, random_state=0).fit(*shells[:2])
    assert model.score(*shells[:2]) > accuracy(model.forest_proba(shells[0]), shells[1]) - 0.1
    assert model.score(*shells[2:]) > accuracy(model.forest_proba(shells[2]), shells[3])


def test_a_seed_gives_one_result_whatever_the_threads(shells):
    table, classes, unseen, _ = shells
    model = NeuralForestClassifier(**{**QUICK, "batch_size": 256})
    result = []
    for count in (1, 2):
        with threads(count):
            result.append(clone(model).fit(table, classes).predict_proba(unseen))
    np.testing.assert_array_equal(result[0], result[1])
    other = clone(model).set_params(random_state=1).fit(table, classes).predict_proba(unseen)
    assert (other != result[0]).any()


def test_the_scale_of_columns_does_not_matter(shells):
    table, classes, unseen, _ = shells
    powers = 2.0 ** np.array([-30, -3, 0, 3, 10, 40])  # exact in float32
    plain = NeuralForestClassifier(**QUICK).fit(table, classes).predict_proba(unseen)
    scaled = NeuralForestClassifier(**QUICK).fit(table * powers, classes).predict_proba(unseen * powers)
    np.testing.assert_allclose(scaled, plain, atol=1e-4)


def test_words_as_classes_a_pipeline_a_grid_and_a_copy():
    table, truth = load_iris(return_X_y=True)
    table[::7, 1] = np.nan
    classes = np.array(["setosa", "versicolor", "virginica"])[truth]
    pipeline = make_pipeline(SimpleImputer(), NeuralForestClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"neuralforestclassifier__max_depth": [1, 4]}, cv=2, error_score="raise")
    search.fit(table, classes)
    assert search.best_score_ > 0.9
    assert set(search.predict(table)) == set(classes)
    assert cross_val_score(clone(pipeline), table, classes, scoring="neg_log_loss", error_score="raise").mean() > -0.5
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict_proba(table), search.predict_proba(table))


def test_the_forest_and_the_network_can_be_saved_and_predict_tables_as_images(refined, shells, tmp_path):
    unseen = shells[2]
    for model, expected in (
        (refined.to_forest(), refined.forest_proba(unseen, refined.to_forest())),
        (refined.network_, refined.predict_proba(unseen)),
    ):
        hr.save(model, tmp_path / "model.hedge")
        proba = hr.load(tmp_path / "model.hedge").predict_proba(table_channels(unseen))
        np.testing.assert_array_equal(proba[:, 0].T, expected)


def test_columns_without_information_and_one_class():
    constant = NeuralForestClassifier(**QUICK).fit(np.ones((40, 3)), np.arange(40) % 2)
    np.testing.assert_allclose(constant.predict_proba(np.zeros((2, 3))), 0.5, atol=0.2)
    alone = NeuralForestClassifier(**QUICK).fit(np.eye(9), np.full(9, "moss"))
    assert set(alone.predict(np.eye(9))) == {"moss"}
    np.testing.assert_array_equal(alone.forest_proba(np.eye(9), alone.to_forest()), 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, ["NaN", "row 3, column 1", "SimpleImputer"]), (-np.inf, ["infinite"]), (1e20, ["1e+20", "rescale"])],
)
def test_values_that_cannot_be_used_are_refused(value, words, refined, shells):
    table = shells[2].copy()
    table[3, 1] = value
    for attempt in (lambda: refined.predict(table), lambda: NeuralForestClassifier().fit(table, shells[3])):
        with pytest.raises(hr.InputError) as problem:
            attempt()
        assert isinstance(problem.value, ValueError)  # which is what scikit-learn's tools expect
        assert_one_sentence(problem, *words)


def test_masked_values_are_refused(refined, shells):
    """Not taken for real: their masks would be lost."""
    X, y = shells[:2]
    masked_X, masked_y = (np.ma.masked_array(part, mask=np.zeros(part.shape, bool)) for part in (X, y))
    assert table_channels(masked_X).shape == (X.shape[1], 1, len(X))  # nothing is masked
    masked_X[3, 1] = masked_y[3] = np.ma.masked
    for work in (
        lambda: NeuralForestClassifier(epochs=1).fit(masked_X, y),
        lambda: NeuralForestClassifier(epochs=1).fit(X, masked_y),
        lambda: refined.predict(masked_X),
        lambda: table_channels(masked_X),
    ):
        with pytest.raises(hr.InputError) as problem:
            work()
        assert_one_sentence(problem, "masked values", "SimpleImputer")


@pytest.mark.parametrize(
    "setting",
    [
        {"n_trees": 0},
        {"max_depth": 1.5},
        {"split": "hard"},
        {"sharpness": 3.0},
        {"epochs": -1},
        {"batch_size": 0},
        {"learning_rate": float("nan")},
    ],
    ids=str,
)
def test_settings_outside_their_limits_are_refused_when_fitting(setting, shells):
    with pytest.raises(hr.ConfigError) as problem:
        NeuralForestClassifier(**setting).fit(*shells[:2])
    assert_one_sentence(problem)


def test_an_unknown_way_back_is_refused(refined):
    with pytest.raises(hr.ConfigError) as problem:
        refined.to_forest("magic")
    assert_one_sentence(problem, "magic", "leaf_mean")


@pytest.mark.parametrize("sharpness", [hr.Sharpness(1e6, 1.0, 1e6), hr.Sharpness(1e-6, 1.0, 1e-6)])
def test_the_largest_rates_and_sharpnesses_leave_numbers(sharpness, shells):
    model = NeuralForestClassifier(**QUICK, learning_rate=1e3, sharpness=sharpness).fit(*shells[:2])
    for method in ("weights", "leaf_mean", "soft"):
        assert np.isfinite(model.forest_proba(shells[2], model.to_forest(method))).all()
    assert np.isfinite(model.predict_proba(shells[2])).all()
