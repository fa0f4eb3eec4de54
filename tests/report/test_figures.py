"""The figure of inner layers: its content, its scales, legible text, and refusals."""

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hedgerow.errors import HedgerowError, InputError, ModelError
from hedgerow.images.legend import Legend
from hedgerow.images.pictures import grey_picture
from hedgerow.report import figures
from hedgerow.report.figures import look
from hedgerow.report.layer_maps import (
    MAX_MAP_SIDE,
    LevelMaps,
    Scale,
    class_scales,
    has_outliers,
    level_maps,
    most_frequent,
    plan_rows,
)
from hedgerow.report.naming import class_display
from helpers.forests import grown_stack
from helpers.refusals import assert_one_sentence

matplotlib = pytest.importorskip("matplotlib")
from hedgerow.report import panels


@pytest.fixture
def net(stack):
    """A network for each test, since some change it."""
    pytest.importorskip("torch")
    from hedgerow.network.mapping import to_convnet

    return to_convnet(stack)


@pytest.fixture
def signed_net(net):
    """A network whose first level has votes against a class, as refinement can make them."""
    import torch

    with torch.no_grad():
        net.level(0).vote_weight[:, 1] -= 0.5 * net.level(0).vote_weight.mean()
    return net


def outputs_like(n_levels, n_classes, size=(12, 16), seed=0):
    """Class probabilities (C,H,W) of each level, at random."""
    maps = np.random.default_rng(seed).random((n_levels, n_classes, *size)).astype(np.float32) ** 4
    return list(maps / maps.sum(axis=1, keepdims=True))


def levels_of(outputs, classes, shown=None):
    return [level_maps(output, classes, shown or classes) for output in outputs]


def figure_of(n_classes, nets=True, n_levels=2, truth=True, title="", size=(12, 16), values=None, names=None):
    classes = tuple(range(n_classes)) if values is None else values
    forests = levels_of(outputs_like(n_levels, n_classes, size), classes)
    rows = plan_rows(forests, levels_of(outputs_like(n_levels, n_classes, size, 1), classes) if nets else [])
    picture = np.zeros((*size, 3), np.uint8)
    sides = {"image": picture} | ({"truth": picture} if truth else {})
    return panels.draw(rows, classes, class_display(classes, Legend(), names), sides, title)


def words(figure):
    return [text.get_text() for text in figure.texts]


def maps_of(figure):
    """The panels of values, in order; colour bars have one column."""
    drawn = [image for axes in figure.axes for image in axes.images]
    return [image for image in drawn if image.get_array().ndim == 2 and image.get_array().shape[1] > 1]


def test_a_network_is_shown_beside_its_stack(signed_net, example, tmp_path):
    path = tmp_path / "a.png"
    figure = look(signed_net, example.images[0], path, truth=example.labels[0], title="costs $5 to $6").figure
    with Image.open(path) as written:
        assert written.format == "PNG"
        assert 500 < written.width < 3000
        assert 500 < written.height < 3000
        assert np.asarray(written.convert("L")).std() > 20
    texts = words(figure)
    assert texts[:4] == ["costs $5 to $6", "image", "truth", "labels"]
    for text in ("class 3", "class 77", "class 200", "probability", "activation"):
        assert texts.count(text) == 1, text
    assert texts.count("forest") == texts.count("DF") == texts.count("network") == texts.count("ConvNet") == 2
    assert {"level 1", "level 2", "H3", "output"} <= set(texts)
    assert len(maps_of(figure)) == 4 * 3
    assert not any("left out" in text for text in texts)
    assert not any(text.get_parse_math() for text in figure.texts)  # or "$5 to $" would become a formula


def test_a_stack_is_shown_alone(stack, example):
    figure = look(stack, example.images[0], classes=[200, 3, 200]).figure
    texts = words(figure)
    assert [text for text in texts if text.startswith("class ")] == ["class 200", "class 3"]
    assert "network" not in texts
    assert "activation" not in texts
    assert len(maps_of(figure)) == 2 * 2
    assert "1 of 3 classes are left out of the panels." in texts


def test_panels_hold_the_outputs(stack, example):
    figure = look(stack, example.images[0], classes=[200, 3]).figure
    expected = [output[k] for output in stack.level_outputs(example.images[0]) for k in (2, 0)]
    for panel, output in zip(maps_of(figure), expected, strict=True):
        np.testing.assert_array_equal(panel.get_array(), output)


def test_classes_have_the_names_and_colours_of_the_model(stack, example):
    legend = Legend({3: "bone", 200: "a name that is far too long for the room above a panel"}, {77: (9, 8, 7)})
    named = replace(stack, legend=legend)
    figure = look(named, example.images[0], truth=example.labels[0]).figure
    texts = words(figure)
    assert texts.count("bone") == 2  # above its panels, and in the key
    assert {"class 77", "77"} <= set(texts)
    assert any(text.startswith("a name") and "…" in text for text in texts)
    swatches = [patch.get_facecolor()[:3] for patch in figure.axes[0].patches]
    assert swatches.count(pytest.approx((9 / 255, 8 / 255, 7 / 255))) == 2
    pictures = [image.get_array() for image in figure.axes[0].images if image.get_array().ndim == 3]
    assert all((picture == (9, 8, 7)).all(axis=2).any() for picture in pictures[1:])


@pytest.mark.parametrize(("ending", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")])
def test_the_ending_decides_the_format(stack, example, tmp_path, ending, start):
    path = tmp_path / f"a.{ending}"
    look(stack, example.images[0], path, classes=[3])
    assert path.read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_without_a_path_the_drawing_shows_itself(stack, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawing = look(stack, example.images[0], classes=[3])
    assert not list(tmp_path.iterdir())
    with Image.open(io.BytesIO(drawing._repr_png_())) as shown:
        assert shown.format == "PNG"
        assert shown.width == pytest.approx(figures.NOTEBOOK_DPI * drawing.figure.get_size_inches()[0], abs=1)
    assert repr(drawing).startswith("Drawing(")
    drawing.save("a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(InputError) as problem:
        drawing.save("a.doc")
    assert_one_sentence(problem, ".png, .pdf, .svg")


def test_drawing_leaves_no_trace_in_matplotlib(stack, example, tmp_path):
    before, modules = dict(matplotlib.rcParams), set(sys.modules)
    look(stack, example.images[0], tmp_path / "a.png", classes=[3])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in set(sys.modules) - modules


def test_negative_activations_have_a_diverging_scale_centred_at_zero(signed_net, example):
    outputs = signed_net.level_outputs(example.images[0])
    assert outputs[0].min() < -0.01
    display = class_display(signed_net.classes, Legend())
    forests = levels_of(signed_net.stack.level_outputs(example.images[0]), display.values)
    rows = plan_rows(forests, levels_of(outputs, display.values))
    assert [row.is_signed for row in rows] == [False, True, False, False]
    assert all(scale.low == -scale.high < 0 for scale in rows[1].scales)
    figure = panels.draw(rows, display.values, display, {"image": np.zeros((24, 32, 3), np.uint8)})
    panel = maps_of(figure)[3]
    assert panel.norm(0.0) == pytest.approx(0.5)
    assert min(panel.cmap(0.5)[:3]) > 0.9
    assert sum("±" in text for text in words(figure)) == 3


def test_a_class_has_one_scale_for_forest_and_network_and_another_class_its_own():
    forests = outputs_like(2, 4)
    nets = [0.5 * forests[0], 0.1 * forests[1]]
    rows = plan_rows(levels_of(forests, range(4)), levels_of(nets, range(4)))
    assert len({row.scales for row in rows}) == 1
    faint = [np.stack([output[0], 0.05 * output[1]]) for output in forests]
    strong, weak = plan_rows(levels_of(faint, (0, 1)), [])[0].scales
    assert weak.high < 0.1 * strong.high


def test_the_brightest_colour_is_the_largest_value_of_the_class():
    forests = [np.full((2, 6, 5), 0.2, np.float32)]
    forests[0][1, :3] = 0.05
    figure = panels.draw(
        plan_rows(levels_of(forests, (0, 1)), []), (0, 1), class_display((0, 1), Legend()),
        {"image": np.zeros((6, 5, 3), np.uint8)},
    )  # fmt: skip
    tops = [panel.cmap(panel.norm(panel.get_array().max())) for panel in maps_of(figure)]
    assert tops[0] == tops[1]
    assert [text for text in words(figure) if text.startswith("0–")] == ["0–0.2", "0–0.2"]


def test_rows_name_the_papers_layers_behind_plain_words():
    forests = outputs_like(3, 2)
    rows = plan_rows(levels_of(forests, (5, 9), (9,)), levels_of(forests, (5, 9), (9,)))
    assert [" ".join(row.name) for row in rows] == [
        "forest DF level 1", "network ConvNet H3", "forest DF level 2", "network ConvNet H6", "forest DF level 3",
        "network ConvNet output",
    ]  # fmt: skip
    for row, output in zip(rows[::2], forests, strict=True):
        np.testing.assert_array_equal(row.level.maps, output[1:])
        np.testing.assert_array_equal(row.level.labels, np.where(output[1] > output[0], 9, 5))


def test_the_scale_leaves_out_outliers_and_a_note_says_so():
    maps = np.tile(np.linspace(0, 1, 1000, dtype=np.float32).reshape(1, 20, 50), (2, 1, 1))
    whole = plan_rows([LevelMaps(maps.copy(), maps[0])], [])
    assert whole[0].scales[0].high == pytest.approx(0.998, abs=1e-3)
    assert not has_outliers(whole)
    maps[0, 3, 3] = 10
    spoilt = plan_rows([LevelMaps(maps, maps[0])], [])
    assert spoilt[0].scales[0].high < 1.01
    assert has_outliers(spoilt)
    assert not any("beyond" in note for note in panels.notes_on(whole, 2, 2))
    assert any("beyond" in note for note in panels.notes_on(spoilt, 2, 2))


def test_a_rare_class_keeps_its_range():
    maps = np.zeros((2, 40, 50), np.float32)
    maps[0, 0, 0], maps[1, :20] = 0.9, 0.3
    assert class_scales([maps], False) == (Scale(pytest.approx(0.9)), Scale(pytest.approx(0.3)))


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0, 3.0])
def test_constant_maps_are_drawn(value):
    maps = np.full((2, 6, 5), value, np.float32)
    levels = levels_of([maps], (0, 1))
    rows = plan_rows(levels, levels)
    assert all(scale.low <= value <= scale.high > scale.low for scale in rows[0].scales)
    display = class_display((0, 1), Legend())
    panels.draw(rows, (0, 1), display, {"image": np.zeros((6, 5, 3), np.uint8)}).canvas.draw()


def test_a_lone_negative_value_among_zeros_has_a_range():
    maps = np.zeros((1, 40, 40), np.float32)
    maps[0, 0, 0] = -2
    (row,) = plan_rows([LevelMaps(maps, maps[0])], [])
    assert row.scales == (Scale(2, signed=True),)
    assert row.scales[0].low == -2


def test_the_most_frequent_classes_are_shown_in_order():
    winners = np.repeat(np.arange(10), [1, 9, 9, 9, 9, 2, 9, 9, 9, 9])
    counts = np.bincount(winners)
    assert most_frequent(counts, tuple(range(100, 110))) == [101, 102, 103, 104, 106, 107, 108, 109]
    assert most_frequent(counts[:2], (7, 3)) == [7, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"n_classes": 2, "n_levels": 1, "nets": False},
        {"n_classes": 2, "n_levels": 1, "nets": False, "truth": False},
        {"n_classes": 2, "title": "a long title " * 30},
        {"n_classes": 3, "values": (-2147483648, 0, 2147483647)},
        {"n_classes": 8, "n_levels": 3, "title": "three levels"},
        {"n_classes": 22},
        {"n_classes": 6, "names": {0: "a rather long name of a class", 3: "W" * 30}},
        {"n_classes": 5, "size": (4, 90)},
        {"n_classes": 5, "size": (90, 4)},
        {"n_classes": 2, "size": (1, 1), "nets": False},
    ],
)
def test_every_text_is_inside_the_figure_and_none_lies_on_another(options):
    figure = figure_of(**options)
    figure.canvas.draw()  # axis labels have no position before
    renderer = figure.canvas.get_renderer()
    written = figure.texts
    boxes = [text.get_window_extent(renderer) for text in written]
    width, height = figure.canvas.get_width_height()
    for text, box in zip(written, boxes, strict=True):
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    pictures = [image.get_window_extent(renderer) for image in figure.axes[0].images]
    for number, box in enumerate(boxes):
        # Fonts leave space around letters, so boxes may just touch.
        for other in [*boxes[:number], *pictures]:
            overlap = min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(overlap) < 3, written[number]


def test_many_classes_go_into_blocks_of_readable_width():
    figure = figure_of(22, nets=False)
    assert len(maps_of(figure)) == 2 * 22
    assert words(figure).count("labels") == 3
    assert figure.get_size_inches()[0] < 20


def test_large_images_are_thinned():
    level = level_maps(np.zeros((2, 10, 2 * MAX_MAP_SIDE + 1), np.float32), (0, 1), (1,))
    assert level.maps.shape == (1, 4, 683)
    assert level.labels.shape == (4, 683)


def test_depth_is_bright_where_near_and_black_where_unknown():
    features = grown_stack("depth")[0].features
    depth = np.array([[[0, 1000], [1500, 2000]]], np.float32)
    picture = grey_picture(depth, features.blank)[..., 0]
    assert picture[0, 0] == 0
    assert picture[0, 1] > picture[1, 0] > picture[1, 1] > 40
    assert not grey_picture(np.zeros((1, 3, 3), np.float32), features.blank).any()


def test_own_channels_are_pictured_by_their_mean():
    planes, features = np.zeros((2, 6, 7), np.float32), grown_stack("channels")[0].features
    planes[:, 0, 0], planes[1, 5, 6] = (1, 3), 2
    picture = grey_picture(planes, features.blank)
    assert picture.shape == (6, 7, 3)
    assert picture[0, 0, 0] > picture[5, 6, 0] > picture[3, 3, 0] == 0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("a.jpg", {}, ["a.jpg", ".png, .pdf, .svg"]),
        ("a", {}, [".png, .pdf, .svg"]),
        ("a.png", {"classes": [3, 4]}, ["class 4", "3, 77, 200"]),
        ("a.png", {"truth": np.zeros((3, 4), int)}, ["truth", "3 rows x 4 columns"]),
        ("none/a.png", {}, ["none"]),
    ],
)
def test_refusals_are_one_sentence_and_come_before_the_work(
    stack, example, tmp_path, monkeypatch, name, options, words
):
    monkeypatch.setattr(type(stack), "level_outputs", lambda *_: pytest.fail("predicted first"))
    with pytest.raises(InputError) as problem:
        look(stack, example.images[0], tmp_path / name, **options)
    assert_one_sentence(problem, *words)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_remedy_is_named(stack, example, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HedgerowError) as problem:
        look(stack, example.images[0], tmp_path / "a.png")
    assert_one_sentence(problem, "matplotlib", "pip install '.[net]'")


def test_a_network_that_has_diverged_is_refused(net, example, tmp_path):
    import torch

    with torch.no_grad():
        net.level(1).vote_weight[:] = float("nan")
    with pytest.raises(ModelError) as problem:
        look(net, example.images[0], tmp_path / "a.png")
    assert_one_sentence(problem, "ConvNet output", "NaN")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_figure_and_nothing_else(stack, example, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def fail(self, path, **options):
        path.write_bytes(b"half")
        raise OSError("disk full")

    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(InputError) as problem:
        look(stack, example.images[0], path)
    assert_one_sentence(problem, "a.png", "disk full")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
