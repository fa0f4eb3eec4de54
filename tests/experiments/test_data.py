"""The images of experiments: which are taken, how they are made smaller, and what their classes are."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from experiments import data
from hedgerow.errors import InputError
from hedgerow.images.given import labelled_set
from helpers.files import write
from helpers.refusals import assert_one_sentence


def of_values(*values, shape=(4, 5)):
    """A set of images that have two classes each, 0 and a value."""
    labels = [np.zeros(shape, int) for _ in values]
    for label, value in zip(labels, values, strict=True):
        label[0, 0] = value
    return labelled_set(labels, labels)


def test_a_folder_is_read_as_its_list_says(listed_place, example):
    for part, number in (("train", 0), ("test", 1)):
        result = data.load_set(str(listed_place), part)
        np.testing.assert_array_equal(result.images[0].planes[0], example.images[number])
        np.testing.assert_array_equal(result.truth(0), example.labels[number])
        assert len(result) == 1
        assert result.dtype == "uint8"


@pytest.mark.parametrize("part", ["train", "test"])
def test_drawn_images_are_as_many_and_as_large_as_asked_for(part):
    result = data.load_set("bodies", part, 2, (24, 32))
    images, labels = hr.synthetic.bodies(2, (24, 32), seed={"train": 0, "test": 1000}[part])
    labels = data.measured(images, labels)
    for i, image in enumerate(result):
        np.testing.assert_array_equal(image.planes[0], images[i])
        np.testing.assert_array_equal(result.truth(i), labels[i])


@pytest.mark.parametrize(
    ("text", "words"), [(None, ["train.txt"]), ("", ["train.txt", "is empty"]), ("a0 absent", ["train.txt", "absent"])]
)
def test_lists_that_cannot_be_are_refused_in_one_sentence(place, text, words):
    if text is not None:
        (place / "train.txt").write_text(text)
    with pytest.raises(InputError) as problem:
        data.load_set(str(place), "train")
    assert_one_sentence(problem, *words)


def test_images_are_spread_evenly(listed_place, example):
    assert data.spread(list(range(10)), 4) == [0, 2, 5, 7]
    assert list(data.spread(list(range(10)), None)) == list(data.spread(list(range(10)), 12)) == list(range(10))
    for i in range(2, 5):
        for folder in ("images", "labels"):
            original = (listed_place / folder / "a0.png").read_bytes()
            (listed_place / folder / f"a{i}.png").write_bytes(original)
    write(listed_place / "images" / "a2.png", 255 - example.images[0])
    (listed_place / "train.txt").write_text("a0 a1 a2 a3")
    found = data.load_set(str(listed_place), "train", 2)
    np.testing.assert_array_equal(found.images[1].planes[0], 255 - example.images[0])


@pytest.mark.parametrize("shape", [(1, 4, 6), (1, 5, 7), (3, 5, 7)])
def test_halved_images_fit_halved_labels(shape):
    planes = np.random.default_rng(0).integers(0, 255, shape).astype(np.float32)
    half = data.halved(planes)
    assert half.shape == planes[:, ::2, ::2].shape
    np.testing.assert_allclose(half[:, 0, 1], planes[:, :2, 2:4].mean(axis=(1, 2)))
    np.testing.assert_array_equal(data.halved(planes, is_depth=True), planes[:, ::2, ::2])


@pytest.mark.parametrize(("is_depth", "dtype"), [(False, "float32"), (True, "uint8")])
def test_a_set_is_halved_as_often_as_asked_for(example, is_depth, dtype):
    whole = labelled_set(example.images, example.labels)
    quarter = data.shrunk(whole, 4, is_depth)
    halves = [data.halved(data.halved(image.planes, is_depth), is_depth) for image in whole]
    for i, image in enumerate(quarter):
        np.testing.assert_array_equal(image.planes, halves[i])
        np.testing.assert_array_equal(quarter.truth(i), example.labels[i][::4, ::4])
    assert quarter.dtype == dtype
    assert data.shrunk(whole, 1) is whole


def test_classes_are_those_of_the_images_that_are_left():
    whole = of_values(7, 3)
    first = data.recounted(replace(whole, images=whole.images[:1], dtype="uint8"))
    assert (whole.classes, first.classes, first.dtype) == ((0, 3, 7), (0, 7), "uint8")
    assert first.images[0].target.max() == 1
    assert first.images[0].name == whole.images[0].name
    assert data.present(whole) == {0, 3, 7}
    assert data.present(replace(whole, images=whole.images[1:])) == {0, 3}


def test_test_images_get_the_classes_of_the_training_images():
    train, test = of_values(7, 3), of_values(7)
    found = test.with_classes_of(train)
    assert found.classes == train.classes
    np.testing.assert_array_equal(found.truth(0), test.truth(0))
    with pytest.raises(InputError) as problem:
        of_values(5).with_classes_of(train)
    assert_one_sentence(problem, "5", "image 0")


def test_test_images_of_other_channels_are_refused(example):
    train = labelled_set(example.images, example.labels)
    coloured = labelled_set([np.stack([image] * 3, axis=-1) for image in example.images], example.labels)
    with pytest.raises(InputError) as problem:
        coloured.with_classes_of(train)
    assert_one_sentence(problem, "3 channel", "1")


def test_rotated_copies_keep_labels_with_what_they_label():
    label = np.random.default_rng(0).choice([3, 77, 200], (24, 30))
    given = labelled_set([label.astype(np.uint8)], [label])  # so that each pixel says what its label is
    result = data.with_copies(given, hr.AugmentConfig(copies=2), seed=0)
    assert len(result) == 3
    np.testing.assert_array_equal(result.images[0].planes, given.images[0].planes)
    for i in (1, 2):
        copy, labels = result.images[i].planes[0], result.truth(i)
        assert (copy == np.rint(copy)).all(), "the images have whole numbers"
        assert (labels == 255).any()
        assert (labels != 255).sum() > 100
        # Where a copy's pixel is one of the three values it was not blended, and shows its own class.
        pure = (labels != 255) & np.isin(copy, [3, 77, 200])
        assert (copy[pure] == labels[pure]).mean() > 0.8
    assert not np.array_equal(result.truth(1), result.truth(2))


def test_copies_of_real_numbers_are_not_rounded(example):
    given = labelled_set([image / np.float32(7) for image in example.images], example.labels)
    copy = data.with_copies(given, hr.AugmentConfig(copies=1), seed=0).images[1].planes
    assert (copy != np.rint(copy)).any()


def test_scores_are_over_all_images():
    labelled = of_values(7, 3)
    found = labelled.score([image.target for image in labelled])
    assert (found.mean_dice, found.classes) == (1, (0, 3, 7))
    wrong = labelled.score([np.zeros((4, 5), np.uint8)] * 2)
    np.testing.assert_array_equal(wrong.confusion[:, 0], [38, 1, 1])


def test_pictures_are_what_users_hand_in(example):
    coloured = [np.stack([image, 255 - image], axis=-1) for image in example.images]
    for found, given in zip(labelled_set(coloured, example.labels).pictures(), coloured, strict=True):
        np.testing.assert_array_equal(found, given)


def test_parts_that_the_sensor_did_not_see_have_no_label():
    images, labels = hr.synthetic.bodies(3, (60, 80), seed=5)
    result = data.load_set("bodies", "test", 3, (60, 80))
    drawn, _ = hr.synthetic.bodies(3, (60, 80), seed=data.SEEDS["test"])
    hidden = [(depth == 0) & (label < 19) for depth, label in zip(images, labels, strict=True)]
    assert any(pixels.any() for pixels in hidden)
    for label, kept, pixels in zip(labels, data.measured(images, labels), hidden, strict=True):
        assert (kept[pixels] == 255).all()
        np.testing.assert_array_equal(kept[~pixels], label[~pixels])
    for depth, i in zip(drawn, range(3), strict=True):
        assert set(np.unique(result.truth(i)[depth == 0])) <= {19, 255}
