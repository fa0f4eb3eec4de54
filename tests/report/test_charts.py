"""Charts written as SVG: valid, with text as text, and scales of round values."""

import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import numpy as np
import pytest

from hedgerow.report import charts, mistakes
from hedgerow.report.charts import SvgAxes, SvgCanvas, padded, ticks
from hedgerow.report.scores import strip_chart


def parsed(chart):
    """The root of a chart's SVG, and its texts."""
    root = ElementTree.fromstring(unquote(chart.src.partition(",")[2]))
    return root, ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def shapes(chart, kind):
    return [node.attrib for node in parsed(chart)[0].iter(f"{{http://www.w3.org/2000/svg}}{kind}")]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.812, 0.834, ["0.815", "0.82", "0.825", "0.83"]),
        (-64.5, 64.5, ["-60", "-40", "-20", "0", "20", "40", "60"]),
        (0, 31000, ["0", "5000", "10000", "15000", "20000", "25000", "30000"]),
    ],
)
def test_ticks_are_round(low, high, expected):
    named = ticks(low, high, 7)
    assert list(named.values()) == expected
    assert [float(text) for text in named.values()] == pytest.approx(list(named))


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0, 0), (-3, -3), (0.1, 0.9)])
def test_a_padded_range_has_margins(low, high):
    wide = padded(low, high)
    assert wide[0] < low <= high < wide[1]


def test_places_follow_the_scales():
    axes = SvgAxes(SvgCanvas(100, 100), (10, 10, 90, 90), (1, 100), (0, 2), log_x=True)
    assert axes.at(10, 1) == pytest.approx((50, 50))
    assert axes.at(1, 0) == pytest.approx((10, 90))  # up is more


def test_text_is_text_whatever_it_holds():
    canvas = SvgCanvas(10, 10)
    canvas.text(1, 1, "<b>&\"' $x$")
    assert parsed(canvas.image("a chart"))[1] == ["<b>&\"' $x$"]


def test_a_line_chart_has_a_dot_for_each_point_and_a_band_for_a_spread():
    lines = {"a": [(1, 0.2, 0.1), (10, 0.5, 0.0), (100, 0.6, 0.1)], "b": [(10, 0.4, 0.2)]}
    drawn = charts.line_chart(lines, "images", "Dice", "a chart", log_x=True)
    _, texts = parsed(drawn)
    assert {"1", "10", "100", "images", "Dice"} <= set(texts)
    assert len(shapes(drawn, "circle")) == 3
    filled = [path for path in shapes(drawn, "path") if path.get("fill") == charts.MODEL_COLOURS[0]]
    assert len(filled) == 1
    assert list(drawn.key) == ["a", "b"]


def test_a_line_chart_of_one_point_or_of_values_below_nought_on_a_log_scale_is_drawn():
    for line in ([(3, 0.5, 0)], [(0, -1, 0), (5, 2, 0)], [(k, k, 0) for k in range(50)]):
        root, texts = parsed(charts.line_chart({"a": line}, "x", "y", "a chart", log_x=True))
        assert "NaN" not in str(ElementTree.tostring(root))
        assert len(texts) > 4


@pytest.mark.parametrize("n", [2, 8, 9, 22, 100])
def test_a_confusion_matrix_shows_the_parts_of_each_row(n):
    matrix = np.zeros((n, n), np.int64)
    matrix[0, :2] = 30, 10
    matrix[1:, 1] = 5
    names, swatches = [f"class {k}" for k in range(n)], [f"#0000{k:02x}" for k in range(n)]
    drawn = mistakes.confusion_chart(matrix, names, swatches, "#123456", "a chart", "", "")
    _, texts = parsed(drawn)
    assert all(texts.count(name) == 2 for name in names)
    cells = [rect for rect in shapes(drawn, "rect") if rect["fill"] == "#123456" and float(rect["width"]) > 9.01]
    opacities = [float(rect.get("fill-opacity", 1)) for rect in cells]
    assert opacities[:2] == pytest.approx([0.75**0.5, 0.5], abs=0.001)
    assert len(cells) == 2 + n - 1
    assert ("0.25" in texts) == (n <= mistakes.MAX_NUMBERED_CLASSES)
    assert [rect["fill"] for rect in shapes(drawn, "rect") if rect["fill"].startswith("#0000")] == [
        swatch for swatch in swatches for _ in "xy"
    ]


def test_a_strip_has_a_dot_for_each_known_value():
    drawn = strip_chart([0.2, 0.5, float("nan"), 0.8], (0, 1), "#123456", "a strip")
    dots = [float(dot["cx"]) for dot in shapes(drawn, "circle")]
    assert len(dots) == 3
    assert dots == sorted(dots)
