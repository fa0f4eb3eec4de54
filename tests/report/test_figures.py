"""The figure of internal layers: what is shown, on which scale, that its text is legible, and what is refused."""

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hedgerow.errors import HedgerowError, InputError, ModelError
from hedgerow.images.legend import Legend
from hedgerow.report import figures as looking
from hedgerow.report.figures import Row, Scale, beyond, draw, look, most_frequent, plan_rows, scale_of
from helpers.forests import grown_stack
from helpers.refusals import assert_one_sentence

matplotlib = pytest.importorskip("matplotlib")


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


def figure_of(n_classes, nets=True, n_levels=2, truth=True, title="", size=(12, 16), values=None):
    classes = tuple(range(n_classes)) if values is None else values
    forests = outputs_like(n_levels, n_classes, size)
    rows = plan_rows(forests, outputs_like(n_levels, n_classes, size, 1) if nets else [], classes, classes)
    picture = np.zeros((*size, 3), np.uint8)
    return draw(rows, classes, classes, {"image": picture} | ({"truth": picture} if truth else {}), title)


def texts(figure):
    return [text for text in figure.texts if text.get_text() != "\N{BLACK SQUARE}"]


def names(figure):
    return [axes.get_ylabel().replace("\n", " ") for axes in figure.axes if axes.get_ylabel()]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that `look` draws."""
    figures = []

    def keep(*arguments):
        figures.append(draw(*arguments))
        return figures[-1]

    monkeypatch.setattr(looking, "draw", keep)
    return figures


def test_a_network_is_shown_beside_its_stack(signed_net, example, tmp_path, drawn):
    look(signed_net, example.images[0], tmp_path / "a.png", truth=example.labels[0], title="costs $5 to $6")
    with Image.open(tmp_path / "a.png") as written:
        assert written.format == "PNG"
        assert 500 < written.width < 3000
        assert 500 < written.height < 3000
        assert np.asarray(written.convert("L")).std() > 20
    (figure,) = drawn
    # H3 is negative somewhere and so has a colour bar of its own, between those of the forests.
    shown = ["image", "truth", "DF level 1", "probability", "ConvNet H3", "activation"]
    assert names(figure) == [*shown, "DF level 2", "ConvNet output", "probability"]
    assert len(figure.axes) == 2 + 4 * (1 + 3) + 3
    written = [text.get_text() for text in texts(figure)]
    assert written[:5] == ["costs $5 to $6", "labels", "class 3", "class 77", "class 200"]
    assert not any("left out" in text for text in written)
    assert not any(text.get_parse_math() for text in figure.texts)  # or "$5 to $" would become a formula


def test_a_stack_is_shown_alone_on_one_scale(stack, example, tmp_path, drawn):
    look(stack, example.images[0], tmp_path / "a.png", classes=[200, 3, 200])
    (figure,) = drawn
    assert names(figure) == ["image", "DF level 1", "DF level 2", "probability"]
    assert len(figure.axes) == 1 + 2 * (1 + 2) + 1
    written = [text.get_text() for text in texts(figure)]
    assert written[:3] == ["labels", "class 200", "class 3"]
    assert "1 of 3 classes are left out of the panels." in written


def test_panels_hold_the_outputs(stack, example, tmp_path, drawn):
    look(stack, example.images[0], tmp_path / "a.png", classes=[200, 3])
    expected = [output[k] for output in stack.level_outputs(example.images[0]) for k in (2, 0)]
    panels = [axes.images[0].get_array() for axes in drawn[0].axes if axes.images]
    maps = [panel for panel in panels if panel.ndim == 2]
    assert len(maps) == len(expected)
    for panel, output in zip(maps, expected, strict=True):
        np.testing.assert_array_equal(panel, output)


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
        assert shown.width == pytest.approx(looking.SCREEN * drawing.figure.get_size_inches()[0], abs=1)
    assert repr(drawing).startswith("Drawing(")
    drawing.save("a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(InputError) as problem:
        drawing.save("a.doc")
    assert_one_sentence(problem, ".png, .pdf, .svg")


def test_classes_have_the_names_and_colours_of_the_model(stack, example, drawn):
    legend = Legend({3: "a name of many letters", 77: "costs $5"}, {200: (1, 2, 3)})
    look(replace(stack, legend=legend), example.images[0], truth=example.labels[0])
    written = [text.get_text() for text in texts(drawn[0])]
    assert written[:4] == ["labels", "a name…tters", "costs $5", "class 200"]
    assert "200" in written
    panels = [axes.images[0].get_array() for axes in drawn[0].axes if axes.images]
    truth = panels[1]
    assert (truth[example.labels[0] == 200] == (1, 2, 3)).all()


def test_drawing_leaves_no_trace_in_matplotlib(stack, example, tmp_path):
    before, modules = dict(matplotlib.rcParams), set(sys.modules)
    look(stack, example.images[0], tmp_path / "a.png", classes=[3])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in set(sys.modules) - modules


def test_negative_activations_have_a_diverging_scale_centred_at_zero(signed_net, example):
    outputs = signed_net.level_outputs(example.images[0])
    assert outputs[0].min() < -0.01
    forests = signed_net.stack.level_outputs(example.images[0])
    rows = plan_rows(forests, outputs, signed_net.classes, signed_net.classes)
    assert [row.scale.diverging for row in rows] == [False, True, False, False]
    assert rows[1].scale.low == -rows[1].scale.high < 0
    assert rows[0].scale == rows[2].scale
    figure = draw(rows, signed_net.classes, signed_net.classes, {"image": np.zeros((24, 32, 3), np.uint8)})
    panel = next(axes.images[0] for axes in figure.axes if axes.images and axes.images[0].norm.vmin < 0)
    assert panel.norm(0.0) == pytest.approx(0.5)
    assert sum(panel.cmap(0.5)[:3]) < 0.2  # black, as the lowest of the other map


def test_a_network_like_its_stack_shares_its_scale_and_a_faint_one_does_not():
    forests = outputs_like(2, 4)
    same = plan_rows(forests, forests, range(4), range(4))
    assert len({row.scale for row in same}) == 1
    faint = plan_rows(forests, [forests[0], 0.24 + 0.01 * forests[1]], range(4), range(4))
    assert faint[-1].scale == scale_of(faint[-1].maps) != faint[0].scale
    assert len({row.scale for row in faint[:-1]}) == 1


def test_rows_name_the_papers_layers():
    forests = outputs_like(3, 2)
    rows = plan_rows(forests, forests, (5, 9), (9,))
    expected = ["DF level 1", "ConvNet H3", "DF level 2", "ConvNet H6", "DF level 3", "ConvNet output"]
    assert [row.name for row in rows] == expected
    assert [row.unit for row in rows[1::2]] == ["activation", "activation", "probability"]
    for row, output in zip(rows[::2], forests, strict=True):
        np.testing.assert_array_equal(row.maps, output[1:])
        np.testing.assert_array_equal(row.labels, np.where(output[1] > output[0], 9, 5))


def test_the_scale_leaves_out_outliers_and_arrows_say_so():
    maps = np.tile(np.linspace(0, 1, 1000, dtype=np.float32).reshape(1, 20, 50), (2, 1, 1))
    assert scale_of(maps) == Scale(pytest.approx(0.005, abs=1e-3), pytest.approx(0.995, abs=1e-3))
    assert beyond([Row("", "", maps, maps[0], scale_of(maps))]) == "neither"
    maps[0, 3, 3] = 50
    scale = scale_of(maps)
    assert scale.high < 1.01
    assert beyond([Row("", "", maps, maps[0], scale)]) == "max"
    maps[1, 3, 3] = -50
    scale = scale_of(maps)
    assert scale == Scale(-scale.high, scale.high, diverging=True)
    assert scale.high < 1.01
    assert beyond([Row("", "", maps, maps[0], scale)]) == "both"
    assert beyond([Row("", "", np.minimum(maps, 0), maps[0], scale)]) == "min"


def test_a_rare_class_is_not_lost_among_the_others():
    maps = np.zeros((8, 20, 50), np.float32)
    maps[0, :2] = 0.9
    assert scale_of(maps).high == pytest.approx(0.9)


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0, 3.0])
def test_constant_maps_are_drawn(value):
    maps = np.full((2, 6, 5), value, np.float32)
    scale = scale_of(maps)
    assert scale.low <= value <= scale.high
    assert scale.low < scale.high
    rows = plan_rows([maps], [maps], (0, 1), (0, 1))
    draw(rows, (0, 1), (0, 1), {"image": np.zeros((6, 5, 3), np.uint8)}).canvas.draw()


def test_a_lone_negative_value_among_zeros_has_a_range():
    maps = np.zeros((1, 40, 40), np.float32)
    maps[0, 0, 0] = -2
    assert scale_of(maps) == Scale(-2, 2, diverging=True)


def test_the_most_frequent_classes_are_shown_in_order():
    winners = np.repeat(np.arange(10), [1, 9, 9, 9, 9, 2, 9, 9, 9, 9])
    output = np.eye(10, dtype=np.float32)[:, winners][:, None]
    assert most_frequent(output, tuple(range(100, 110))) == [101, 102, 103, 104, 106, 107, 108, 109]
    assert most_frequent(output[:2], (7, 3)) == [7, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"n_classes": 2, "n_levels": 1, "nets": False},
        {"n_classes": 2, "n_levels": 1, "nets": False, "truth": False},
        {"n_classes": 2, "title": "a long title " * 30},
        {"n_classes": 3, "values": (-2147483648, 0, 2147483647)},
        {"n_classes": 8, "n_levels": 3, "title": "three levels"},
        {"n_classes": 22},
        {"n_classes": 5, "size": (4, 90)},
        {"n_classes": 5, "size": (90, 4)},
        {"n_classes": 2, "size": (1, 1), "nets": False},
    ],
)
def test_every_text_is_inside_the_figure_and_none_lies_on_another(options):
    figure = figure_of(**options)
    figure.canvas.draw()  # labels of axes have no place before
    renderer = figure.canvas.get_renderer()
    written = texts(figure) + [axes.yaxis.label for axes in figure.axes if axes.get_ylabel()]
    boxes = [text.get_window_extent(renderer) for text in written]
    width, height = figure.canvas.get_width_height()
    for text, box in zip(written, boxes, strict=True):
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    panels = [axes.get_window_extent(renderer) for axes in figure.axes if axes.images]
    for number, box in enumerate(boxes):
        # Fonts leave air around letters: boxes may touch by a hair.
        for other in [*boxes[:number], *panels]:
            overlap = min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(overlap) < 3, written[number]


def test_many_classes_go_into_blocks_of_readable_width():
    figure = figure_of(22, nets=False)
    assert len(figure.axes) == 2 + 3 * 2 * 1 + 2 * 22 + 3  # side, label maps of 3 blocks, class maps, colour bars
    assert figure.get_size_inches()[0] < 20


def test_large_images_are_thinned():
    forests = [np.zeros((2, 10, 2 * looking.MAX_SIDE + 1), np.float32)]
    (row,) = plan_rows(forests, [], (0, 1), (1,))
    assert row.maps.shape == (1, 4, 683)
    assert row.labels.shape == (4, 683)


def test_depth_is_bright_where_near_and_black_where_unknown():
    features = grown_stack("depth")[0].features
    depth = np.array([[[0, 1000], [1500, 2000]]], np.float32)
    picture = looking.input_picture(depth, features)[..., 0]
    assert picture[0, 0] == 0
    assert picture[0, 1] > picture[1, 0] > picture[1, 1] > 40
    assert not looking.input_picture(np.zeros((1, 3, 3), np.float32), features).any()


def test_own_channels_are_pictured_by_their_mean():
    planes, features = np.zeros((2, 6, 7), np.float32), grown_stack("channels")[0].features
    planes[:, 0, 0], planes[1, 5, 6] = (1, 3), 2
    picture = looking.input_picture(planes, features)
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
    assert_one_sentence(problem, "matplotlib", "pip install 'hedgerow[net]'")


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
