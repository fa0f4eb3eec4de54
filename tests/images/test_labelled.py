"""The one carrier of images with labels: checked once, and made only when asked for."""

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images import given as module
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LazySequence
from hedgerow.images.metrics import scores
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from helpers.refusals import assert_one_sentence


def test_a_set_knows_its_classes_and_gives_the_labels_back(example):
    labelled = labelled_set(example.images, example.labels, unlabelled=77, names=["a", "b"])
    assert labelled.classes == (3, 200)
    assert [image.name for image in labelled] == ["a", "b"]
    assert labelled.dtype == "uint8"
    for i, labels in enumerate(example.labels):
        np.testing.assert_array_equal(labelled.truth(i), labels)
        assert labelled.images[i].planes.shape == (1, *labels.shape)


@pytest.mark.parametrize("images", [[], [np.zeros((4, 5))]])
def test_images_and_labels_pair_up(images):
    with pytest.raises(InputError, match="one label map for each image"):
        labelled_set(images, [])


def test_a_map_without_labels_is_named():
    image, labels = np.zeros((4, 5)), np.array([[0, 1] * 2 + [1]] * 4)
    with pytest.raises(InputError, match="the label map of second has no labelled pixel"):
        labelled_set([image, image], [labels, np.full((4, 5), 255)], names=["first", "second"])


def test_items_are_made_when_they_are_asked_for():
    made = []
    items = LazySequence(5, lambda i: made.append(i) or 10 * i)
    some = items[1:4]
    assert not made
    assert (len(items), len(some), some[-1], list(some)) == (5, 3, 30, [10, 20, 30])
    assert made == [3, 1, 2, 3]
    with pytest.raises(IndexError):
        items[5]


def test_images_for_a_model_are_checked_one_by_one(stack, example):
    labelled = labelled_for(stack, [example.images[0], np.zeros((3, 3, 9))], [example.labels[0], np.zeros((3, 3))])
    assert labelled.images[0].target.max() == 2
    with pytest.raises(InputError, match="image 1"):
        labelled.images[1]


def test_each_label_map_is_checked_once_in_training(example, tiny_config, monkeypatch):
    calls = []
    true_check = module.to_labels
    monkeypatch.setattr(module, "to_labels", lambda *given: calls.append(1) or true_check(*given))
    hr.fit_stack(example.images, example.labels, tiny_config, progress=silent)
    assert len(calls) == len(example.labels)


# Masked arrays

IMAGE, TRUTH = np.arange(20.0).reshape(4, 5), np.array([[0, 1, 0, 1, 1]] * 4, np.uint8)
CORNER = np.pad(np.ones((1, 2), bool), ((0, 3), (0, 3)))


@pytest.mark.parametrize("unlabelled", [255, -1])
def test_masked_labels_are_unlabelled(unlabelled):
    masked = np.ma.array(TRUTH, mask=CORNER)
    expected = np.where(CORNER, unlabelled, TRUTH.astype(int))
    for labelled in (
        labelled_set([IMAGE], [masked], unlabelled=unlabelled),
        labelled_set(IMAGE, masked, unlabelled=unlabelled),
    ):
        np.testing.assert_array_equal(labelled.truth(0), expected)
    assert hr.class_table(masked, unlabelled) == hr.class_table(expected, unlabelled)


def test_a_model_is_scored_on_labels_that_are_not_masked(stack, example):
    mask = np.zeros(example.labels[0].shape, bool)
    mask[:5] = True
    masked = np.ma.array(np.where(mask, 77, example.labels[0]), mask=mask)
    expected = np.where(mask, 255, example.labels[0])
    for image in (example.images[0], [example.images[0]]):
        result = hr.evaluate(stack, image, masked if isinstance(image, np.ndarray) else [masked])
        np.testing.assert_array_equal(result.confusion, hr.evaluate(stack, example.images[0], expected).confusion)
    result, wanted = (scores([truth], [example.labels[0]], stack.classes) for truth in (masked, expected))
    np.testing.assert_array_equal(result.confusion, wanted.confusion)


def test_masked_images_are_refused_with_a_remedy(stack, example):
    masked = np.ma.array(example.images[0], mask=example.images[0] > 100)
    masked_map = np.ma.array(example.labels[0], mask=example.labels[0] == 3)
    for use in (
        lambda: stack.predict(masked),
        lambda: stack.predict_proba(masked),
        lambda: hr.fit_stack(masked, example.labels[0]),
        lambda: hr.fit_stack([masked], [example.labels[0]]),
        lambda: hr.evaluate(stack, masked, example.labels[0]),
        lambda: scores([example.labels[0]], [masked_map], stack.classes),
    ):
        with pytest.raises(InputError) as problem:
            use()
        assert_one_sentence(problem, "masked pixels", "filled(0)")
    unmasked = np.ma.array(example.images[0])
    np.testing.assert_array_equal(stack.predict(unmasked), stack.predict(example.images[0]))


# Names of classes


def test_two_classes_of_one_name_are_refused(example, tiny_config):
    with pytest.raises(InputError) as problem:
        hr.fit_stack(example.images, example.labels, tiny_config, legend=hr.Legend({3: "cell", 77: "sky", 200: "cell"}))
    assert_one_sentence(problem, "classes 3 and 200", "'cell'")


def test_the_sentence_about_a_label_map_names_one_thing():
    with pytest.raises(InputError, match="the label map of image 0 has shape"):
        labelled_set([IMAGE], [np.zeros((4, 5, 7))])


def test_classes_of_a_set_with_another_unlabelled_value():
    image = np.zeros((2, 3))
    train = labelled_set([image], [np.array([[0, 3, 3], [255, 255, 3]])], unlabelled=255)
    test = labelled_set([image], [np.array([[7, 3, 3], [0, 7, 3]])], unlabelled=7)
    adopted = test.with_classes_of(train)
    assert (adopted.classes, adopted.unlabelled) == ((0, 3), 255)
    np.testing.assert_array_equal(adopted.truth(0), [[255, 3, 3], [0, 255, 3]])
