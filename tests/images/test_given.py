"""What Python users give as images and labels: files as the command takes them; and mistakes, each with its remedy."""

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.errors import InputError
from hedgerow.images.given import given_images, given_pairs, labelled_set
from hedgerow.images.labelled import refuse_swapped
from helpers.files import write
from helpers.refusals import assert_one_sentence

GREY, LABELS = draw(0)
COLOUR = GREY[..., None].repeat(3, 2)


def files(place):
    return str(place / "images"), str(place / "labels")


def test_folders_train_as_the_arrays_in_them_do(place, example, tiny_config):
    from_arrays = hr.fit_stack(example.images, example.labels, tiny_config).predict_proba(GREY)
    for images, labels in (
        files(place),
        (place / "images", place / "labels"),
        ([place / "images" / "a0.png", str(place / "images" / "a1.png")], f"{place / 'labels'}/*.png"),
    ):
        np.testing.assert_array_equal(hr.fit_stack(images, labels, tiny_config).predict_proba(GREY), from_arrays)
    model = hr.fit(*files(place), "fast", tiny_config)
    np.testing.assert_array_equal(model.predict_proba(GREY), from_arrays)


def test_folders_score_as_the_arrays_in_them_do(place, example, stack):
    expected = hr.evaluate(stack, example.images, example.labels).confusion
    np.testing.assert_array_equal(hr.evaluate(stack, *files(place)).confusion, expected)
    one = hr.evaluate(stack, place / "images" / "a1.png", place / "labels" / "a1.png")
    np.testing.assert_array_equal(one.confusion, hr.evaluate(stack, example.images[1], example.labels[1]).confusion)


def test_the_classifier_takes_folders_and_files(place, example):
    model = hr.PixelClassifier(n_levels=1, n_trees=2).fit(*files(place))
    assert len(model.predict(str(place / "images"))) == 2
    assert model.predict(str(place / "images" / "a0.png")).shape == GREY.shape
    assert model.score(*files(place)) == model.score(example.images, example.labels)


def test_networks_take_folders(place, example, net):
    config = hr.RefineConfig(n_steps=2)
    refined = hr.refine(net, *files(place), config, validation=files(place))
    expected = hr.refine(net, example.images, example.labels, config, validation=(example.images, example.labels))
    np.testing.assert_array_equal(refined.predict_proba(GREY), expected.predict_proba(GREY))
    back = hr.to_forest(net, str(place / "images"), "leaf_mean")
    np.testing.assert_array_equal(
        back.predict_proba(GREY), hr.to_forest(net, example.images, "leaf_mean").predict_proba(GREY)
    )


def test_reports_take_folders_and_name_the_files(place, stack, tmp_path):
    pytest.importorskip("jinja2")
    hr.write_report(tmp_path / "report.html", {"DF": stack}, *files(place), title="From files")
    assert "a1.png" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_colours_in_label_files_are_classes(place, tiny_config):
    for i in range(2):
        red = np.zeros((*LABELS.shape, 3), np.uint8)
        red[draw(i)[1] == 200] = (255, 0, 0)
        write(place / "labels" / f"a{i}.png", red)
    model = hr.fit_stack(*files(place), tiny_config)
    assert model.classes == (0, 1)
    assert model.legend.colours[1] == (255, 0, 0)
    assert hr.evaluate(model, *files(place)).mean_dice > 0.5


def test_names_of_files_are_in_messages(place, stack):
    write(place / "labels" / "a1.png", np.zeros((3, 4), np.uint8))
    for act in (hr.fit_stack, lambda *folders: hr.evaluate(stack, *folders)):
        with pytest.raises(InputError, match=r"images.a1\.png"):
            act(*files(place))


def test_images_without_a_label_file_are_skipped_and_logged(place, example, caplog):
    write(place / "images" / "b.png", GREY)
    assert given_pairs(*files(place)).names == [str(place / "images" / f"a{i}.png") for i in range(2)]
    assert "1 image(s) without a label with the same name are skipped" in caplog.text
    assert "b.png" in caplog.text


def test_images_alone_are_read_when_they_are_asked_for(place):
    (place / "images" / "a0.png").write_bytes(b"not an image")
    images, is_one = given_images(place / "images", 1, "picture")
    assert (len(images), is_one) == (2, False)
    np.testing.assert_array_equal(images[1], draw(1)[0])
    with pytest.raises(InputError, match=r"a0\.png"):
        images[0]


@pytest.mark.parametrize("given", [("photos/", [LABELS]), ([GREY], "labels/"), ([GREY], ["a.png"])])
def test_files_and_arrays_are_not_mixed(given):
    with pytest.raises(InputError) as problem:
        given_pairs(*given)
    assert_one_sentence(problem, "both be files or both be arrays", "hr.read_image")


@pytest.mark.parametrize("image", [GREY, COLOUR])
@pytest.mark.parametrize(
    "labels", [LABELS[..., None], LABELS[..., None].repeat(3, 2), LABELS[..., None].repeat(4, 2)], ids=lambda m: m.shape
)
def test_a_label_map_with_an_axis_too_many_is_taken_where_it_has_one_value_per_pixel(image, labels):
    for given in ((image, labels), ([image], [labels])):
        np.testing.assert_array_equal(labelled_set(*given).truth(0), LABELS)


def test_coloured_labels_are_refused_with_the_remedy():
    colours = np.stack([LABELS, 0 * LABELS, 0 * LABELS], axis=2)
    for given in ((COLOUR, colours), ([COLOUR], [colours]), (GREY, colours)):
        with pytest.raises(InputError) as problem:
            labelled_set(*given)
        assert_one_sentence(problem, "the label map of image 0 has shape", "colours", "hr.read_labels")


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        pytest.param(LABELS, GREY, id="grey"),
        pytest.param([LABELS], [COLOUR * np.array([1, 0, 0], np.uint8)], id="colour"),
        pytest.param([LABELS] * 2, [GREY / 255] * 2, id="fractions"),
        pytest.param(LABELS > 3, np.add(GREY, 0, dtype=np.int64) * 1000 + np.arange(GREY.shape[1]), id="16 bit"),
    ],
)
def test_images_and_labels_that_are_swapped_are_told(images, labels):
    with pytest.raises(InputError) as problem:
        hr.fit_stack(images, labels)
    assert_one_sentence(problem, "images and labels look swapped", "give the images first")


def test_swapped_images_and_labels_are_told_in_scoring(stack):
    with pytest.raises(InputError, match="images and labels look swapped"):
        hr.evaluate(stack, LABELS, GREY)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ([GREY], [GREY]),
        ([LABELS, COLOUR], [GREY, GREY]),
        ([LABELS / 2], [GREY]),
        ([LABELS], [np.where(LABELS == 3, np.nan, LABELS)]),
        ([0 * LABELS], [GREY]),
    ],
)
def test_other_mistakes_do_not_look_swapped(images, labels):
    refuse_swapped(images, labels)
    with pytest.raises(InputError, match="images and labels look swapped"):
        refuse_swapped([LABELS, LABELS > 3], [GREY, COLOUR])


def test_the_name_of_a_file_where_an_array_is_needed_is_told(stack):
    for act in (stack.predict, hr.show):
        with pytest.raises(InputError) as problem:
            act("photo.png")
        assert_one_sentence(problem, "is the name of a file", "hr.read_image('photo.png')")
