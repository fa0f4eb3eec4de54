"""One image with its labels may be given as it is, wherever lists of images are taken."""

import dataclasses

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.errors import InputError
from hedgerow.images.given import given_images, given_pairs

PICTURE, COLOUR, LABELS = np.zeros((6, 7)), np.zeros((6, 7, 3)), np.zeros((6, 7), int)


@pytest.mark.parametrize("image", [PICTURE, COLOUR, np.zeros((5, 6, 7))])
def test_labels_of_two_axes_mean_one_image(image):
    for given in (image, [image]):
        pairs = given_pairs(given, LABELS)
        assert len(pairs.images) == len(pairs.labels) == 1
        assert pairs.images[0].shape == image.shape
        assert pairs.labels[0].shape == LABELS.shape


def test_lists_stay_as_they_are_and_an_array_of_images_needs_axes():
    many, maps = np.zeros((4, 6, 7)), np.zeros((4, 6, 7), int)
    with pytest.raises(InputError, match=r'a volume or 4 images; say which with axes="ZYX" or axes="TYX"'):
        given_pairs(many, maps)
    assert len(given_pairs(many, maps, axes="TYX")) == 4
    assert len(given_pairs(many, maps, axes="ZYX")) == 1
    images, labels = [PICTURE, PICTURE], [LABELS, LABELS]
    assert given_pairs(images, labels).images is images
    assert given_pairs(images, labels).labels is labels
    assert given_pairs(PICTURE, [LABELS]).images[0] is PICTURE


@pytest.mark.parametrize(
    ("shape", "n_inputs", "layout", "is_one"),
    [
        ((6, 7), 1, "picture", True),
        ((6, 7, 1), 1, "picture", True),
        ((6, 7, 3), 3, "picture", True),
        ((4, 6, 7), 1, "picture", False),
        ((4, 6, 7, 3), 3, "picture", False),
        ((5, 6, 7), 5, "planes", True),
        ((4, 5, 6, 7), 5, "planes", False),
    ],
)
def test_without_labels_the_model_tells_whether_it_is_one(shape, n_inputs, layout, is_one):
    array = np.zeros(shape)
    images, found = given_images(array, n_inputs, layout)
    assert found == is_one
    assert len(images) == (1 if is_one else 4)
    assert given_images([array], n_inputs, layout) == ([array], False)


def test_one_image_trains_and_scores_as_a_list_of_one_does(example, tiny_config):
    image, labels = example.images[0], example.labels[0]
    single, many = hr.fit_stack(image, labels, tiny_config), hr.fit_stack([image], [labels], tiny_config)
    np.testing.assert_array_equal(single.predict_proba(image), many.predict_proba(image))
    scores = hr.evaluate(single, image, labels)
    np.testing.assert_array_equal(scores.confusion, hr.evaluate(single, [image], [labels]).confusion)
    assert scores.confusion.sum() == labels.size
    stacked = hr.fit_stack(np.stack(example.images), np.stack(example.labels), tiny_config, axes="TYX")
    assert stacked.settings["n_images"] == 2
    assert hr.class_table(labels) == hr.class_table([labels])


def test_one_colour_image_and_one_of_planes_train(example, tiny_config):
    image, labels = example.images[0], example.labels[0]
    colour = hr.fit_stack(np.stack([image] * 3, axis=2), labels, tiny_config)
    assert colour.features.n_inputs == 3
    own = dataclasses.replace(tiny_config, features="channels")
    assert hr.fit_stack(np.stack([image] * 4), labels, own).features.n_inputs == 4


def test_one_image_refines_and_maps_back(net, example):
    pytest.importorskip("torch")
    image, labels = example.images[0], example.labels[0]
    short = hr.RefineConfig(n_steps=2)
    refined = hr.refine(net, image, labels, short, validation=draw(50))
    assert refined.refinements[-1].refined is not None
    one, many = hr.to_forest(refined, image), hr.to_forest(refined, [image])
    np.testing.assert_array_equal(one.predict_proba(image), many.predict_proba(image))


def test_a_report_takes_one_image(stack, example, tmp_path):
    for package in ("jinja2", "matplotlib"):
        pytest.importorskip(package)
    path = tmp_path / "report.html"
    hr.write_report(path, {"DF": stack}, example.images[0], example.labels[0], title="One")
    assert "on 1 image" in path.read_text()


def test_labels_of_another_size_are_refused(example, tiny_config):
    with pytest.raises(InputError, match="rows"):
        hr.fit_stack(np.stack(example.images), example.labels[0], tiny_config)
