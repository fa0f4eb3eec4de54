"""Tools that follow the image or its segmentation: accepted segmentation, the wand and the smart brush."""

import numpy as np
import pytest

from browsing import Paint
from helpers.browsing import PLAIN, SIZE, write_images
from helpers.files import write

UNPAINTED = 255
DARK = SIZE[1] // 3  # columns of the dark part of the images
STROKES = ((1, (20, 10), (50, 40)), (2, (20, 160), (50, 190)), (2, (90, 90), (130, 110)))


@pytest.fixture(scope="module")
def window(chromium, open_window, tmp_path_factory):
    folder = tmp_path_factory.mktemp("following")
    with Paint(write_images(folder / "images"), folder / "project", before=PLAIN) as server:
        yield open_window(server)


@pytest.fixture
def hand(window):
    window.press("Escape")
    while window.run("hedgerow.app.undo"):
        n = window.run("hedgerow.app.undo")
        window.run("hedgerow.session.send({do: 'undo'})")
        window.until("n => hedgerow.app.undo < n", n, patience=20)
    window.run("{ const {app, stage} = hedgerow; app.setTool('brush'); app.setRadius(6); stage.view.fit(); }")
    window.saved()
    return window


def segment(hand):
    """Paint two classes and wait for the segmentation; returns (H,W) classes on the screen."""
    for place, *places in STROKES:
        hand.choose(place)
        hand.stroke(*places)
    hand.saved()
    hand.until("hedgerow.stage.overlay.results.get(0)?.[0]?.scope === 'full'", patience=60)
    hand.segmented()
    result = hand.run("hedgerow.stage.overlay.results.get(0)[0].result")
    base = hand.page.url.split("/?")[0].rstrip("/")
    answer = hand.page.request.get(f"{base}/api/images/0/overlay/{result}/0?tiles=0.0&what=classes")
    return np.frombuffer(answer.body(), np.uint8).reshape(SIZE)


def use(hand, key, act):
    """Use a tool, and wait until the server has painted; returns the labels before and after."""
    before, n = hand.labels(), hand.run("hedgerow.app.undo")
    hand.press(key)
    act()
    hand.until("n => hedgerow.app.undo === n + 1", n, patience=20)
    hand.saved()
    return before, hand.labels()


def test_a_class_is_accepted_where_nothing_is_painted_and_undone_in_one_step(hand):
    classes = segment(hand)
    hand.choose(2)
    button = hand.page.get_by_role("button", name="Accept the segmentation as paint: object")
    before, after = use(hand, "b", button.click)
    expected = np.where((before == UNPAINTED) & (classes == 1), 1, before)
    np.testing.assert_array_equal(after, expected)
    assert (after != before).sum() > 1000
    hand.run("document.querySelector('#stage').focus()")
    hand.press("Control+z")
    hand.until("hedgerow.app.redo === 1", patience=10)
    hand.saved()
    np.testing.assert_array_equal(hand.labels(), before)


def test_the_segmentation_is_accepted_of_an_area_and_within_a_line(hand):
    classes = segment(hand)
    before, after = use(hand, "a", lambda: hand.page.mouse.click(*hand.place(120, 20)))
    new = after != before
    assert new[120, 20]
    assert (after[new] == classes[120, 20]).all()
    assert (before[new] == UNPAINTED).all()

    corners = ((60, 120), (60, 190), (80, 190), (80, 120))
    before, after = use(hand, "a", lambda: hand.stroke(*corners))
    rows, columns = np.nonzero(after != before)
    assert rows.min() >= 59
    assert rows.max() <= 81
    assert len(rows) > 800
    np.testing.assert_array_equal(after[rows, columns], classes[rows, columns])


def test_the_wand_paints_an_area_of_similar_brightness(hand):
    hand.run("document.querySelector('#tolerance').value = 20")
    hand.press("w")
    assert hand.page.locator("#tolerance").is_visible()
    assert hand.page.locator("#radius").is_hidden()
    hand.page.locator("#tolerance").fill("20")
    hand.choose(1)
    _, after = use(hand, "w", lambda: hand.page.mouse.click(*hand.place(70, 20)))
    share = (after == hand.run("hedgerow.app.classId")).mean(axis=0)
    assert share[: DARK - 3].mean() > 0.85
    assert share[DARK + 3 :].max() == 0


def test_the_smart_brush_stops_at_an_edge(hand):
    hand.choose(1)
    hand.run("hedgerow.app.setRadius(12)")
    _, after = use(hand, "s", lambda: hand.stroke((30, DARK - 7), (120, DARK - 7)))
    mine = after != UNPAINTED
    assert mine[40:110, DARK - 12 : DARK - 3].mean() > 0.9
    assert mine[:, DARK + 2 :].sum() == 0  # a plain brush would paint up to five pixels beyond the edge
    assert hand.colour("labels", 75, DARK + 4)[3] == 0  # and neither does the page show it
    assert hand.colour("labels", 75, DARK - 8)[3] == 255


def test_the_paint_has_an_opacity_of_its_own_and_can_be_hidden(hand):
    hand.choose(1)
    hand.stroke((30, 20), (60, 40))
    hand.saved()
    opacity = lambda: hand.run("getComputedStyle(document.querySelector('#canvas-labels')).opacity")  # noqa: E731
    assert opacity() == "1"
    hand.page.locator("#stroke-opacity").fill("40")
    assert opacity() == "0.4"
    hand.run("document.querySelector('#stage').focus()")
    hand.press("v")
    assert opacity() == "0"
    assert hand.page.locator("#strokes").get_attribute("aria-pressed") == "false"
    hand.stroke((80, 20), (90, 40))  # new paint is always seen
    assert opacity() == "0.4"
    hand.page.locator("#stroke-opacity").fill("100")


def test_all_tools_are_in_sight_on_a_small_screen(hand):
    hand.page.set_viewport_size({"width": 1280, "height": 720})
    box = hand.page.locator("#tool-compare").bounding_box()
    area = hand.page.locator(".toolbar-area").bounding_box()
    hand.page.set_viewport_size({"width": 1100, "height": 700})
    assert box["y"] + box["height"] <= area["y"] + area["height"]


def test_what_followed_the_segmentation_is_the_same_after_a_restart(open_page, tmp_path):
    with Paint(write_images(tmp_path / "images"), tmp_path / "project", before=PLAIN) as server:
        hand = open_page(server)
        segment(hand)
        _, after = use(hand, "a", lambda: hand.page.mouse.click(*hand.place(120, 20)))
        hand.run("hedgerow.app.setRadius(12)")
        _, after = use(hand, "s", lambda: hand.stroke((60, 100), (70, 130)))
        server.kill()
        server.start()
        hand = open_page(server)
        np.testing.assert_array_equal(hand.labels(), after)
        assert hand.run("hedgerow.app.undo") == 5


def test_labels_given_at_the_start_are_paint(open_page, tmp_path):
    wanted = np.full(SIZE, UNPAINTED, np.uint8)
    wanted[10:40, 5:60], wanted[100:140, 140:190] = 0, 3
    write(tmp_path / "labels" / "a.png", wanted)
    options = ("--labels", str(tmp_path / "labels"))
    images = write_images(tmp_path / "images")
    with Paint(images, tmp_path / "project", before=PLAIN, options=options) as server:
        hand = open_page(server)
        labels = hand.labels()
        np.testing.assert_array_equal(labels == UNPAINTED, wanted == UNPAINTED)
        names = hand.run("hedgerow.app.classes.map(({name}) => name)")
        assert names == ["background", "object", "class 3"]
        hand.until("hedgerow.stage.overlay.results.has(0)", patience=60)
        hand.press("Control+z")
        hand.until("hedgerow.app.redo === 1", patience=10)
        assert (hand.labels() == UNPAINTED).all()


def test_classes_are_moved_merged_and_removed_and_all_is_undone(open_page, tmp_path):
    with Paint(write_images(tmp_path / "images"), tmp_path / "project", before=PLAIN) as server:
        hand = open_page(server)
        page, names = hand.page, "hedgerow.app.classes.map(({name}) => name).join()"
        page.click("#add-class")
        hand.until(f"{names} === 'background,object,class 3'", patience=10)
        page.get_by_role("button", name="Move up class 3").click()
        hand.until(f"{names} === 'background,class 3,object'", patience=10)
        hand.press("Escape")
        hand.choose(2)
        hand.stroke((30, 20), (60, 40))
        hand.saved()
        before = hand.labels()
        third = hand.run("hedgerow.app.classId")
        assert (before == third).any()

        page.locator(f"[data-id='{third}'] .class-name").dblclick()
        page.get_by_role("button", name="Remove or merge class 3").click()
        page.locator("#merge-into").select_option(label="object")
        page.get_by_role("button", name="Remove", exact=True).click()
        hand.until(f"{names} === 'background,object'", patience=10)
        hand.saved()
        np.testing.assert_array_equal(hand.labels(), np.where(before == third, 1, before))

        server.kill()
        server.start()
        hand = open_page(server)
        assert hand.run(names) == "background,object"
        hand.press("Control+z")  # the class returns with its paint
        hand.until("hedgerow.app.classes.length === 3", patience=10)
        hand.saved()
        np.testing.assert_array_equal(hand.labels(), before)
