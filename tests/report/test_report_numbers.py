"""The numbers on the page: calibration, the choices of forests, the images shown, and the format of numbers."""

import base64
import io
import platform
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import hedgerow as hr
from hedgerow.forest.arrays import LEAF, Forest
from hedgerow.forest.history import Check, Refinement
from hedgerow.images import pictures
from hedgerow.images.array_checks import to_planes
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores
from hedgerow.progress import silent
from hedgerow.report import embed, examples, formatting, gains, splits
from hedgerow.report.layer_maps import thinning
from hedgerow.report.measure import Calibration, MeasuredModel, measure


@pytest.fixture(scope="module")
def measured(stack):
    """The stack on two images, one of them partly labelled, and the targets."""
    from conftest import draw

    drawn = [draw(seed) for seed in (50, 51)]
    targets = [np.searchsorted(stack.classes, labels).astype(np.uint8) for _, labels in drawn]
    targets[1][:7] = 255
    images = [image for image, _ in drawn]
    pairs = [LabelledImage(to_planes(image), target) for image, target in zip(images, targets, strict=True)]
    (model,) = measure({"DF": stack}, LabelledSet(pairs, stack.classes), None, lambda done: None)
    return model, images, targets


def test_scores_are_those_of_evaluate(measured, stack):
    model, images, targets = measured
    values = np.array([*stack.classes, *[255] * 253])
    labels = [values[np.minimum(target, 3)] for target in targets]
    expected = hr.evaluate(stack, images, labels, progress=silent)
    np.testing.assert_array_equal(model.scores.confusion, expected.confusion)
    np.testing.assert_array_equal(sum(scores.confusion for scores in model.per_image), expected.confusion)
    for i, image in enumerate(images):
        np.testing.assert_array_equal(values[model.label_maps[i]], stack.predict(image))
    assert len(model.per_level) == stack.n_levels
    outputs = [stack.level_outputs(image)[0].argmax(axis=0) for image in images]
    known = [target != 255 for target in targets]
    right = sum(int((o == t)[k].sum()) for o, t, k in zip(outputs, targets, known, strict=True))
    assert np.trace(model.per_level[0].confusion) == right


def test_calibration_against_a_plain_loop(measured, stack):
    model, images, targets = measured
    probas = [stack.predict_proba(image) for image in images]
    known = np.concatenate([t.ravel() != 255 for t in targets])
    sure = np.concatenate([p.max(axis=0).ravel() for p in probas])[known].astype(np.float64)
    right = np.concatenate([(p.argmax(axis=0) == t).ravel() for p, t in zip(probas, targets, strict=True)])[known]
    n = len(model.calibration.pixels)
    error = 0.0
    for b in range(n):
        inside = (np.minimum(sure * n, n - 1)).astype(int) == b
        assert model.calibration.pixels[b] == inside.sum()
        if inside.any():
            error += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
            assert model.calibration.accuracy[b] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan(model.calibration.accuracy[b])
    assert model.calibration.expected_error == pytest.approx(error)


def test_a_calibrated_model_has_no_error():
    bins = Calibration(np.array([10, 0, 4]), np.array([2, 0, 3]), np.array([2.0, 0.0, 3.0]))
    assert bins.expected_error == 0


def test_the_calibration_error_adds_up_over_bins_whichever_way_they_err():
    """The model is 0.2 too unsure about 10 pixels and 0.3 too sure about 30; the two do not cancel out."""
    bins = Calibration(np.array([10, 0, 30]), np.array([9, 0, 15]), np.array([7.0, 0.0, 24.0]))
    assert bins.expected_error == pytest.approx(0.275)


def test_successive_refinements_are_one_history():
    first = Refinement({}, (Check(0, mean_dice=0.1), Check(5, 2.0, 0.2)), n_scored=1)
    second = Refinement({}, (Check(0, mean_dice=0.2), Check(3, 1.0, 0.4), Check(6, 0.5)), n_scored=1)
    expected = [Check(0, mean_dice=0.1), Check(5, 2.0, 0.2), Check(8, 1.0, 0.4), Check(11, 0.5)]
    assert gains.joined_checks([first, second]) == expected
    assert gains.joined_checks([]) == []


@pytest.mark.parametrize("n_scored", [0, 1])
def test_scores_of_refinement_are_explained_where_there_are_some(n_scored):
    record = Refinement({}, (Check(0, 2.0, 0.1), Check(5, 1.0, 0.2)), n_scored=n_scored)
    net = SimpleNamespace(name="net", model=SimpleNamespace(refinements=[record]))
    (section,) = gains.refinement(SimpleNamespace(models=[net], colours={"net": "#112233"}))
    assert ("Scores are on held-out images" in section.text) == bool(n_scored)


def test_the_time_is_measured(measured):
    model, *_ = measured
    assert model.seconds > 0


def test_large_maps_are_thinned():
    assert thinning((512, 3), 512) == 1
    assert thinning((3, 513), 512) == 2
    assert thinning((3, 4, 1000), 512) == 1  # the axis of colours does not count


def small_forest():
    """A root that reads channel 0 at the pixel; its right child reads channel 1 at (-2, 4) and 2 at the pixel."""
    offset = np.zeros((5, 2, 3), np.float32)
    offset[2, 0] = (1, -2, 4)
    return Forest(
        root=np.array([0], np.int32),
        left_child=np.array([1, LEAF, 3, LEAF, LEAF], np.int32),
        threshold=np.zeros(5, np.float32),
        channel=np.array([[0, 0], [0, 0], [1, 2], [0, 0], [0, 0]], np.int32),
        offset=offset,
        radius=np.zeros((5, 2), np.int32),
        weight=np.array([[1, 0], [0, 0], [3, -1], [0, 0], [0, 0]], np.float32),
        leaf_index=np.array([LEAF, 0, LEAF, 1, 2], np.int32),
        votes=np.eye(3, dtype=np.float32),
        n_channels=3,
    )


def test_a_split_counts_half_as_much_as_the_one_above():
    forest = small_forest()
    np.testing.assert_array_equal(splits.node_depths(forest), [0, 1, 1, 2, 2])
    weights = splits.probe_weights(forest)
    np.testing.assert_allclose(weights[0], [2 / 3, 0])
    np.testing.assert_allclose(weights[2], [1 / 4, 1 / 12])  # a third, shared 3 to 1
    assert weights[[1, 3, 4]].sum() == 0


def test_offsets_fall_into_the_cell_that_they_are_in():
    forest = small_forest()
    assert splits.farthest(forest) == 4
    offsets = splits.offset_map(forest, splits.probe_weights(forest), 4.0)
    assert offsets.cells.shape == (9, 9)
    assert offsets.cells.sum() == pytest.approx(1)
    assert offsets.cells[4, 4] == pytest.approx(3 / 4)
    assert offsets.cells[2, 8] == pytest.approx(1 / 4)  # two rows up, four columns to the right
    assert offsets.median == 0
    assert splits.offset_map(forest, np.zeros((5, 2)), 4.0) is None


def test_shares_of_a_grown_stack_sum_to_one(stack):
    choices = splits.stack_choices(stack)
    assert choices[0].of_classes is None
    for level in choices:
        assert level.weighted.sum() == pytest.approx(1)
        assert level.plain.sum() == pytest.approx(1)
    assert choices[1].of_features.share + choices[1].of_classes.share == pytest.approx(1)


def test_offsets_that_are_all_nought_make_a_map_of_one_cell():
    forest = small_forest()
    forest.offset[:] = 0
    offsets = splits.offset_map(forest, splits.probe_weights(forest), splits.farthest(forest))
    np.testing.assert_allclose(offsets.cells, [[1]])


def scored(hits):
    """A model with this number of correct pixels of ten, per image."""
    per_image = tuple(Scores((0, 1), np.array([[n, 10 - n], [10 - n, n]])) for n in hits)
    return MeasuredModel("m", None, per_image[:1], per_image, (), None, 1.0)


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        ([5], {0: "The image"}),
        ([5, 7], {1: "Best image", 0: "Worst image"}),
        ([9, 3, 5], {2: "Typical image", 0: "Best image", 1: "Worst image"}),
        ([4, 4, 4, 4], {1: "Typical image", 3: "Best image", 0: "Worst image"}),
    ],
)
def test_typical_best_and_worst(hits, expected):
    assert examples.chosen_images(scored(hits)) == expected


def test_errors_are_coloured_by_whether_the_first_model_made_them():
    picture = np.full((1, 5, 3), 100, np.uint8)
    wrong = np.array([[True, True, False, False, False]])
    first = np.array([[True, False, True, False, False]])
    unlabelled = np.array([[False, False, False, False, True]])
    errors = examples.error_picture(picture, wrong, first, unlabelled)
    expected = [examples.BOTH_WRONG, examples.NEWLY_WRONG, examples.FIRST_WRONG, (40, 40, 40), examples.NO_LABEL]
    np.testing.assert_array_equal(errors[0], expected)


@pytest.mark.parametrize(("n_colours", "mode"), [(1, "L"), (2, "P"), (256, "P"), (257, "RGB")])
def test_pictures_are_stored_small_and_without_loss(n_colours, mode):
    numbers = np.arange(n_colours)
    colours = np.stack([numbers % 256, numbers // 256, 7 * numbers % 256], axis=1)
    if mode == "L":
        colours[:] = 77
    picture = colours[np.arange(15 * 23) % n_colours].reshape(15, 23, 3).astype(np.uint8)
    stored = embed.embed_png(picture, "a picture")
    image = Image.open(io.BytesIO(base64.b64decode(stored.src.partition(",")[2])))
    assert image.mode == mode
    assert (stored.width, stored.height) == image.size == (23, 15)
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), picture)


@pytest.mark.parametrize(("width", "kind"), [(1, "webp"), (150, "png")])
def test_figures_too_large_for_webp_are_png(width, kind):
    stored = embed.embed_figure(Figure(figsize=(width, 0.5)), "a figure")
    assert stored.src.startswith(f"data:image/{kind};base64,")
    assert (stored.width, stored.height) == (110 * width, 55)


def test_the_background_takes_no_colour_of_the_others():
    palette = pictures.class_palette((1, 5, 9), background=5)
    assert (palette[5] == pictures.BACKGROUND_GREY).all()
    np.testing.assert_array_equal([palette[1], palette[9]], pictures.class_colours(2))
    np.testing.assert_array_equal(list(pictures.class_palette((1, 5, 9)).values()), pictures.class_colours(3))
    assert [tuple(colour) for colour in examples.index_palette(palette).values()][1:] == [
        (pictures.BACKGROUND_GREY,) * 3, tuple(palette[9]), examples.NO_LABEL,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (12345, "12,345"), ("0.5", "0.5"), (None, "–"), (float("nan"), "–")]
)
def test_cells(value, text):
    assert formatting.cell(value) == text


def test_numbers_read_well():
    assert [formatting.signed(value) for value in (0.1, -0.1, -0.0001)] == ["+0.100", "−0.100", "0.000"]
    assert [formatting.milliseconds(s) for s in (0.0012, 0.5, 12)] == ["1.2", "500", "12,000"]
    assert formatting.shortened("abcdefghij", 5) == "ab…ij"
    assert formatting.joined_words(["a", "b", "c"]) == "a, b and c"
    nested = {"a": {"b": [1, 0.5], "c": {}}, "d": None, "e": ""}
    assert list(formatting.settings_rows(nested)) == [("a.b", "1, 0.5"), ("a.c", "{}"), ("d", "–"), ("e", "–")]


def test_versions_name_no_machine():
    versions = formatting.versions()
    assert versions["hedgerow"] == hr.__version__
    assert versions["numpy"] == np.__version__
    assert platform.node() not in versions.values()
