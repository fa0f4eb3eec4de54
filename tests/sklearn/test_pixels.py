"""`PixelClassifier`: the same models as the functions make, and scikit-learn's conventions without scikit-learn."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import jobs
from hedgerow.errors import ConfigError, InputError
from hedgerow.io.model_file import file_content
from helpers.files import write
from helpers.refusals import assert_one_sentence

SMALL = {"n_levels": 1, "n_trees": 2, "max_depth": 4, "context": hr.ContextConfig(window=9, n_offsets=3)}


@pytest.fixture(scope="module")
def fitted(example):
    return hr.PixelClassifier(**SMALL, seed=3).fit(example.images, example.labels)


def test_it_is_what_the_functions_make(fitted, example):
    stack = hr.fit_stack(example.images, example.labels, hr.StackConfig(**SMALL, seed=3))
    image, labels = example.images[1], example.labels[1]
    assert fitted.classes_.tolist() == list(stack.classes)
    np.testing.assert_array_equal(fitted.predict(image), stack.predict(image))
    np.testing.assert_array_equal(fitted.predict_proba(image), stack.predict_proba(image))
    assert fitted.score(image, labels) == hr.evaluate(stack, image, labels).mean_dice


def test_a_list_of_images_gives_a_list(fitted, example):
    for many in (example.images, np.stack(example.images)):
        found = fitted.predict(many)
        assert isinstance(found, list)
        np.testing.assert_array_equal(found[1], fitted.predict(example.images[1]))
    assert [proba.shape for proba in fitted.predict_proba(example.images)] == [(3, 24, 32)] * 2
    assert fitted.score(example.images, example.labels) > 0.5


def test_with_refine_it_is_the_refined_network(example):
    pytest.importorskip("torch")
    how = hr.RefineConfig(n_steps=2)
    model = hr.PixelClassifier(**SMALL, refine=how).fit(example.images, example.labels)
    stack = hr.fit_stack(example.images, example.labels, hr.StackConfig(**SMALL))
    net = hr.refine(hr.to_convnet(stack), example.images, example.labels, how)
    np.testing.assert_array_equal(model.predict_proba(example.images[0]), net.predict_proba(example.images[0]))
    assert isinstance(model.model_, hr.StackNet)
    assert hr.PixelClassifier(refine=True, seed=7)._refinement() == hr.RefineConfig(seed=7)


def test_unlabelled_pixels_and_names_are_passed_on(example):
    labels = [np.where(one == 77, -1, one) for one in example.labels]
    legend = hr.Legend({3: "cell"})
    model = hr.PixelClassifier(**SMALL, unlabelled=-1, legend=legend).fit(example.images, labels)
    assert model.classes_.tolist() == [3, 200]
    assert model.model_.legend == legend
    assert 0 < model.score(example.images, labels) <= 1


def test_parameters_are_those_of_the_constructor(fitted):
    params = fitted.get_params()
    assert params["n_trees"] == 2
    assert params["features"] is None, "chosen by fit"
    again = hr.PixelClassifier(**params)
    assert again.get_params() == params
    assert again.set_params(n_trees=5, seed=0) is again
    assert repr(again) == (
        "PixelClassifier(n_levels=1, n_trees=5, max_depth=4, context=ContextConfig(window=9, n_offsets=3))"
    )
    assert repr(hr.PixelClassifier()) == "PixelClassifier()"
    with pytest.raises(ConfigError) as problem:
        again.set_params(trees=5)
    assert_one_sentence(problem, "'trees'", "n_trees")


@pytest.mark.parametrize(("params", "words"), [({"n_trees": 0}, ["n_trees"]), ({"refine": 3}, ["refine", "3"])])
def test_fit_refuses_what_is_out_of_range(example, params, words):
    with pytest.raises(ConfigError) as problem:
        hr.PixelClassifier(**params).fit(example.images, example.labels)
    assert_one_sentence(problem, *words)


def test_a_model_that_was_not_fitted_says_so(example):
    with pytest.raises(InputError) as problem:
        hr.PixelClassifier().predict(example.images[0])
    assert_one_sentence(problem, "fit(images, labels)")


def test_it_can_be_pickled(fitted, example):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(example.images[0]), fitted.predict(example.images[0]))


def test_it_needs_neither_scikit_learn_nor_torch():
    code = (
        "import sys; sys.modules['sklearn'] = sys.modules['torch'] = None\n"
        "import hedgerow as hr\n"
        "images, labels = hr.synthetic.somites(n_images=2, size=(24, 24))\n"
        "print(hr.PixelClassifier(1, 1).fit(images, labels).predict(images[0]).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split("\n")[0] == "(24, 24)"


def test_scikit_learns_tools_take_it(fitted, example):
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.model_selection import GridSearchCV
    from sklearn.utils.validation import check_is_fitted

    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
    search = GridSearchCV(fresh, {"n_trees": [1, 3]}, cv=2, error_score="raise")
    search.fit(list(example.images), list(example.labels))
    assert search.best_params_["n_trees"] in (1, 3)
    assert search.predict(example.images[0]).shape == (24, 32)


@pytest.mark.parametrize("part", [pytest.param(1.0, marks=pytest.mark.slow), 0.05])
def test_every_way_to_train_makes_the_same_model(tmp_path, part):
    """In Python, as an estimator, and from files, on full labels and on strokes."""
    images, labels = hr.synthetic.facades(n_images=2, size=(64, 80))
    if part < 1:
        labels = [hr.synthetic.paint(whole, part) for whole in labels]
    for k, (image, truth) in enumerate(zip(images, labels, strict=True)):
        write(tmp_path / "images" / f"{k}.png", image)
        write(tmp_path / "labels" / f"{k}.png", truth)
    request = jobs.TrainRequest(tmp_path / "images", tmp_path / "labels", tmp_path / "model.hedge")
    models = [
        hr.fit_stack(images, labels),
        hr.fit(images, labels, "fast"),
        hr.PixelClassifier().fit(images, labels).model_,
        jobs.train(request).model,
        hr.load(tmp_path / "model.hedge"),
    ]
    contents = [file_content(model) for model in models]
    assert all(content == contents[0] for content in contents)
    few, usual = (
        hr.PixelClassifier(n_trees=3).fit(images, labels).model_.settings["config"],
        models[0].settings["config"],
    )
    assert few == {**usual, "n_trees": 3, "augment": few["augment"]}  # fewer trees leave time for more altered copies
