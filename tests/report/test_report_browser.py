"""The page in a real browser, wide and narrow: everything loads and fits, and it makes no requests."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import hedgerow as hr
from conftest import draw
from hedgerow.progress import silent
from hedgerow.report import Curve, Table, write_report
from helpers import browser

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None or browser.DRIVER is None,
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)
SECTIONS = [
    "scores", "examples", "images", "levels", "training", "confusion", "layers", "calibration", "channels", "offsets",
    "more", "facts",
]  # fmt: skip
LONG = "a_name_without_any_place_to_break_it_" * 4


@pytest.fixture(scope="module")
def address(stack, refined, example, tmp_path_factory):
    """Of a page with every section, and with names that do not fit a narrow one."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    models = {"DF": stack, "ConvNet": refined, "MB2": hr.to_forest(refined, example.images, "leaf_mean")}
    write_report(
        path, models, example.images, example.labels, title=LONG, names=[LONG, "b"], class_names={3: LONG},
        tables=[Table(LONG, ("kind", *"abcdefghijkl"), ((LONG, *range(12)),))],
        curves=[Curve(LONG, LONG, "Dice", {LONG: [(1, 0.2, 0.1), (2, 0.31, 0)]})],
        settings={LONG: LONG}, progress=silent,
    )  # fmt: skip
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium():
    with browser.browsing() as chromium:
        yield chromium


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 768, 390, 360])
def test_the_page_is_whole(chromium, address, width, dark):
    chromium.open(address, width, dark=dark)
    assert chromium.run("return [...document.querySelectorAll('main > section')].map(s => s.id)") == SECTIONS
    sizes = chromium.run("return [...document.images].map(i => [i.naturalWidth, i.clientWidth, i.clientHeight])")
    assert len(sizes) > 25
    assert all(min(size) > 0 for size in sizes)
    assert chromium.run("return innerWidth") == width
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    # Nothing exceeds its section, except inside a scrolling part.
    outside = chromium.run(
        "const right = element => element.getBoundingClientRect().right;"
        "const free = [...document.querySelectorAll('main *')].filter(element => !element.closest('.scroll'));"
        "return free.filter(e => right(e) > right(e.closest('section')) + 1).map(e => e.outerHTML.slice(0, 200))"
    )
    assert outside == []
    assert chromium.complaints() == []
    asked = chromium.requests()
    assert address in asked
    assert all(one.startswith("data:") or one == address for one in asked)


NAMES = "return [...document.querySelectorAll('table.images tbody tr')].map(r => r.cells[0].textContent)"
SCORES = "return [...document.querySelectorAll('table.images tbody tr')].map(r => r.cells[2].textContent)"
CLICK = "document.querySelectorAll('table.images thead button')[{}].click()"


@pytest.fixture(scope="module")
def many(stack, refined, tmp_path_factory):
    """Of a page whose list of images is folded, with an image named twice."""
    path = tmp_path_factory.mktemp("many") / "report.html"
    drawn = [draw(seed) for seed in range(16)]
    spoilt = [np.roll(labels, seed, axis=1) for seed, (_, labels) in enumerate(drawn)]
    names = [f"photo {(7 * k) % 15}" for k in range(16)]
    write_report(
        path, {"DF": stack, "ConvNet": refined}, [image for image, _ in drawn], spoilt, title="Many", names=names,
        progress=silent,
    )  # fmt: skip
    return path.as_uri()


def test_images_are_sorted_by_a_click_on_the_head_of_a_column(chromium, many):
    chromium.open(many, 1000)
    assert chromium.run("return [...document.querySelectorAll('table.images')].map(t => t.tBodies[0].rows.length)") == [
        10, 6,
    ]  # fmt: skip
    names = chromium.run(NAMES)
    numbers = sorted(names, key=lambda name: int(name.split()[1]))
    chromium.run(CLICK.format(0))
    assert chromium.run(NAMES) == numbers
    chromium.run(CLICK.format(0))
    assert chromium.run(NAMES) == numbers[::-1]
    chromium.run(CLICK.format(2))
    scores = chromium.run(SCORES)
    assert len(set(scores)) > 5
    assert scores == sorted(scores)
    sorted_heads = (
        "return [...document.querySelectorAll('table.images th[aria-sort]')].map(h => [h.cellIndex, h.ariaSort])"
    )
    assert chromium.run(sorted_heads) == [[2, "ascending"]] * 2  # of both parts of the list
    chromium.run(CLICK.format(5))  # the same column's head, of the second part
    assert chromium.run(SCORES) == scores[::-1]
    assert chromium.run("return [...document.querySelectorAll('table.images')].map(t => t.tBodies[0].rows.length)") == [
        10, 6,
    ]  # fmt: skip
    assert chromium.complaints() == []


def test_the_page_follows_the_colour_scheme(chromium, address):
    grounds = []
    for dark in (False, True):
        chromium.open(address, 1000, dark=dark)
        grounds.append(chromium.run("return getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(int(part) for part in ground[4:-1].split(",")) for ground in grounds)
    assert light > 600
    assert dark < 150


def test_the_page_prints(chromium, address):
    chromium.open(address, 1000)
    assert chromium.pdf().startswith(b"%PDF")
