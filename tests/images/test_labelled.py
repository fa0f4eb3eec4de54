"""The one carrier of images with labels: checked once, and made only when asked for."""

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images import labelled as module
from hedgerow.images.labelled import WhenAsked, labelled_set
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent


def test_a_set_knows_its_classes_and_gives_the_labels_back(example):
    found = labelled_set(example.images, example.labels, unlabelled=77, names=["a", "b"])
    assert found.classes == (3, 200)
    assert [image.name for image in found] == ["a", "b"]
    assert found.dtype == "uint8"
    for i, labels in enumerate(example.labels):
        np.testing.assert_array_equal(found.truth(i), labels)
        assert found.images[i].planes.shape == (1, *labels.shape)


@pytest.mark.parametrize("images", [[], [np.zeros((4, 5))]])
def test_images_and_labels_pair_up(images):
    with pytest.raises(InputError, match="one label map for each image"):
        labelled_set(images, [])


def test_a_map_without_labels_is_named():
    image, labels = np.zeros((4, 5)), np.array([[0, 1] * 2 + [1]] * 4)
    with pytest.raises(InputError, match="the labels of second"):
        labelled_set([image, image], [labels, np.full((4, 5), 255)], names=["first", "second"])


def test_items_are_made_when_they_are_asked_for():
    made = []
    items = WhenAsked(5, lambda i: made.append(i) or 10 * i)
    some = items[1:4]
    assert not made
    assert (len(items), len(some), some[-1], list(some)) == (5, 3, 30, [10, 20, 30])
    assert made == [3, 1, 2, 3]
    with pytest.raises(IndexError):
        items[5]


def test_images_for_a_model_are_checked_one_by_one(stack, example):
    found = labelled_for(stack, [example.images[0], np.zeros((3, 3, 9))], [example.labels[0], np.zeros((3, 3))])
    assert found.images[0].target.max() == 2
    with pytest.raises(InputError, match="image 1"):
        found.images[1]


def test_each_label_map_is_checked_once_in_training(example, tiny_config, monkeypatch):
    calls = []
    true_check = module.to_labels
    monkeypatch.setattr(module, "to_labels", lambda *given: calls.append(1) or true_check(*given))
    hr.fit_stack(example.images, example.labels, tiny_config, progress=silent)
    assert len(calls) == len(example.labels)
