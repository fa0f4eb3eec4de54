"""The page in a real browser: the mouse paints, the overlay follows, and nothing is lost."""

import numpy as np
import pytest

from helpers.browsing import SIZE

UNPAINTED = 255
DARK, BRIGHT = (70, 20), (70, 180)


def painted(hand, place, *places):
    """Paint a stroke with the class at this place of the list, and wait until it is saved."""
    hand.choose(place)
    hand.stroke(*places)
    hand.saved()


@pytest.fixture(scope="module")
def window(open_window, server):
    return open_window(server)


@pytest.fixture
def hand(window):
    """The page at the first image, with the brush and the overlay in colours."""
    window.run("document.querySelector('#stage').focus()")
    window.press("Escape")
    window.run(
        "{ const {app, stage} = hedgerow; app.setTool('brush'); app.setRadius(6); app.show(0); "
        "app.setOverlay({mode: 'classes'}); stage.view.fit(); }"
    )
    window.saved()
    return window


@pytest.fixture
def segmented(hand):
    """The page after a stroke of each of two classes, with the segmentation on the screen."""
    painted(hand, 1, (30, 15), (60, 45))
    painted(hand, 2, (30, 160), (60, 190))
    hand.segmented()
    return hand


def test_the_overlay_appears_and_follows_the_paint(segmented):
    hand = segmented
    colours = hand.run("hedgerow.app.classes.map(each => each.colour)")
    rgb = [tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in colours]
    assert hand.colour("overlay", *DARK)[:3] == rgb[0]
    assert hand.colour("overlay", *BRIGHT)[:3] == rgb[1]
    before = hand.drawn("overlay")
    results = hand.count()
    painted(hand, 2, (130, 10), (140, 50))  # the area of the first class is now painted as the second
    hand.until("before => hedgerow.stage.overlay.stamps > before", results)
    hand.segmented()
    hand.until("hedgerow.stage.overlay.results.get(0)[0].scope !== 'visible'")
    assert (hand.drawn("overlay") != before).any()


def test_undo_redo_and_reload(segmented):
    hand = segmented
    before = hand.labels()
    painted(hand, 1, (100, 100), (110, 130))
    after = hand.labels()
    assert (after != before).any()
    assert after[100, 100] == after[110, 130] == hand.run("hedgerow.app.classId")
    assert hand.colour("labels", 105, 115)[3] == 255

    steps = hand.run("hedgerow.app.undo")
    hand.press("Control+z")
    hand.until("steps => hedgerow.app.undo < steps", steps)
    hand.saved()
    np.testing.assert_array_equal(hand.labels(), before)
    assert hand.colour("labels", 105, 115)[3] == 0
    hand.press("Control+y")
    hand.until("steps => hedgerow.app.undo === steps", steps)
    np.testing.assert_array_equal(hand.labels(), after)

    hand.page.reload()
    hand.ready()
    hand.saved()
    np.testing.assert_array_equal(hand.labels(), after)
    assert hand.colour("labels", 105, 115)[3] == 255
    hand.segmented()  # the overlay reappears without a stroke
    assert hand.colour("overlay", *DARK)[3] == 255


def test_a_second_image_has_labels_of_its_own(hand):
    first = hand.labels(0)
    hand.page.get_by_role("button", name="b.png").click()
    hand.until("hedgerow.app.image.id === 1")
    painted(hand, 2, (20, 160), (50, 160))
    np.testing.assert_array_equal(hand.labels(0), first)
    assert (hand.labels(1) != UNPAINTED).any()
    hand.until("document.querySelector('.thumb[data-id=\"1\"] .dot') !== null")
    assert "painted" in hand.page.locator('.thumb[data-id="1"]').get_attribute("aria-label")
    hand.press("PageUp")
    hand.until("hedgerow.app.image.id === 0")


def test_the_right_button_erases_and_every_tool_paints(hand):
    hand.press("0")
    painted(hand, 1, (100, 60), (100, 120))
    assert hand.labels()[100, 90] != UNPAINTED
    hand.stroke((100, 80), (100, 100), button="right")
    hand.saved()
    assert hand.labels()[100, 90] == UNPAINTED

    hand.press("l")
    hand.stroke((120, 60), (120, 120))
    hand.saved()
    assert hand.labels()[120, 90] != UNPAINTED

    hand.press("p")
    for corner in ((10, 80), (10, 130), (40, 130), (40, 80)):
        hand.page.mouse.click(*hand.place(*corner))
    hand.press("Escape")  # a cancelled polygon paints nothing
    assert hand.labels()[25, 100] == UNPAINTED
    hand.run("document.querySelector('#stage').focus()")
    for corner in ((10, 80), (10, 130), (40, 130), (40, 80), (10, 80)):
        hand.page.mouse.click(*hand.place(*corner))
    hand.saved()
    own = hand.run("hedgerow.app.classId")
    assert (hand.labels()[10:41, 80:131] == own).all()

    hand.press("e")
    hand.stroke((25, 100), (25, 112))
    hand.saved()
    assert hand.labels()[25, 105] == UNPAINTED
    hand.press("f")
    hand.page.mouse.click(*hand.place(25, 105))
    hand.saved()
    hand.until("hedgerow.stage.labels.labelAt(25, 105) !== 255")
    assert (hand.labels()[10:41, 80:131] == own).all()
    hand.press("b")


def test_classes_are_added_named_coloured_hidden_and_locked(hand):
    page, n_before = hand.page, hand.run("hedgerow.app.classes.length")
    page.get_by_role("button", name="Add").click()
    page.get_by_label("Colour of the class").fill("#123456")
    page.get_by_label("Name of the class").fill("moss & <b>stone</b>")
    page.keyboard.press("Enter")
    hand.until(
        "n => hedgerow.app.classes.length === n + 1 && hedgerow.app.classes.at(-1).colour === '#123456'", n_before
    )
    hand.until("hedgerow.app.paintClass.name === 'moss & <b>stone</b>'")
    painted(hand, n_before + 1, (140, 60), (140, 90))
    assert hand.colour("labels", 140, 75) == (0x12, 0x34, 0x56, 255)

    page.get_by_role("button", name="Lock moss").click()
    hand.until("hedgerow.app.paintClass.locked")
    painted(hand, 1, (130, 75), (148, 75))
    assert hand.labels()[140, 75] == hand.run("hedgerow.app.classes.at(-1).id")
    hand.choose(n_before + 1)
    page.get_by_role("button", name="Unlock moss").click()
    hand.until("!hedgerow.app.paintClass.locked")

    page.get_by_role("button", name="Hide moss").click()
    hand.until("hedgerow.app.paintClass.hidden")
    assert hand.colour("labels", 140, 85)[3] == 0
    page.get_by_role("button", name="Show moss").click()
    hand.until("!hedgerow.app.paintClass.hidden")


def test_the_keyboard_alone_paints(hand):
    hand.page.keyboard.press("Tab")
    for _ in range(40):
        if hand.run("document.activeElement.id") == "stage":
            break
        hand.page.keyboard.press("Tab")
    before = hand.labels()
    hand.press("2", "ArrowRight", "ArrowDown", "Enter", "ArrowRight", "ArrowRight", "ArrowRight", "Enter")
    hand.saved()
    after = hand.labels()
    row, col = (
        round(value)
        for value in hand.run("[hedgerow.stage.marks.crosshair.row - 0.5, hedgerow.stage.marks.crosshair.col - 0.5]")
    )
    assert after[row, col] == hand.run("hedgerow.app.classId")
    assert (after != before).sum() > 100
    hand.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Space")
    hand.saved()
    assert (hand.labels() != after).any()
    hand.press("Control+z", "Control+z")


def test_the_overlay_is_shown_in_every_way_and_compared(segmented):
    hand = segmented
    whole = hand.drawn("overlay")[..., 3]
    seen = {}
    for mode in ("Outlines", "Probability", "Uncertainty"):
        hand.page.get_by_role("radio", name=mode).click()
        hand.segmented()
        seen[mode] = hand.drawn("overlay")[..., 3]
        assert (seen[mode] != whole).any()
    assert 0 < (seen["Outlines"] > 0).mean() < 0.5 * (whole > 0).mean()
    per_pixel = "hedgerow.stage.overlay.reach"
    assert (hand.run("hedgerow.stage.view.scale") > 1.5, hand.run(per_pixel)) == (True, 1)
    hand.run("hedgerow.stage.view.zoomBy(1 / hedgerow.stage.view.scale)")
    assert hand.run(per_pixel) == 2  # otherwise outlines would be hardly visible
    hand.run("hedgerow.stage.view.fit()")
    hand.page.get_by_role("radio", name="Off").click()
    assert hand.run("hedgerow.stage.overlay.canvas.style.opacity") == "0"
    hand.page.get_by_role("radio", name="Colours").click()
    hand.page.keyboard.down("c")
    assert hand.run("hedgerow.stage.labels.canvas.style.opacity") == "0"
    hand.page.keyboard.up("c")
    assert hand.run("hedgerow.stage.labels.canvas.style.opacity") == "1"


def test_where_next_goes_there_and_says_why(segmented):
    hand = segmented
    hand.run("() => { hedgerow.app.on('suggested', ({why}) => globalThis.why = why); }")
    hand.press("n")
    hand.until("globalThis.why")
    hand.until("hedgerow.stage.marks.suggested")
    place = hand.run("[hedgerow.stage.marks.suggested.row, hedgerow.stage.marks.suggested.col]")
    assert 0 <= place[0] <= SIZE[0]
    (top, bottom), (left, right) = hand.run("Object.values(hedgerow.stage.view.region)")
    assert top <= place[0] <= bottom
    assert left <= place[1] <= right
    corner = hand.run("Object.values(hedgerow.stage.view.centred(0, 0, 8))")
    assert corner == hand.run("(() => { const {width, height} = hedgerow.stage.view;"
                              "return [(height - 48) / 16, (width - 48) / 16]; })()")  # fmt: skip
    assert hand.run("why") in hand.page.locator("#callout").inner_text()


def test_wheel_and_keys_zoom_pan_and_size(hand):
    page, view = hand.page, "[hedgerow.stage.view.row, hedgerow.stage.view.col, hedgerow.stage.view.scale]"
    page.mouse.move(*hand.place(50, 50))
    before = hand.run(view)
    page.mouse.wheel(0, -300)
    hand.until("before => hedgerow.stage.view.scale > before * 1.2", before[2])
    size = hand.run("hedgerow.app.radius")
    page.keyboard.down("Alt")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Alt")
    hand.until("before => hedgerow.app.radius > before", size)
    labels = hand.labels()
    page.keyboard.down("Space")
    page.mouse.down()
    page.mouse.move(400, 300, steps=3)
    page.mouse.up()
    page.keyboard.up("Space")
    np.testing.assert_array_equal(hand.labels(), labels)
    assert hand.run(view)[:2] != before[:2]
    hand.press("0")
    assert hand.run("hedgerow.stage.view.scale === hedgerow.stage.view.fitScale")


def test_panels_wait_until_the_hand_rests(hand):
    hand.run("() => { globalThis.told = 0; hedgerow.app.on('counts', () => { told += 1; }); }")
    hand.choose(1)
    before = hand.run("Object.values(hedgerow.app.image.pixels).reduce((sum, each) => sum + each, 0)")
    hand.page.wait_for_timeout(100)
    hand.run("told = 0")
    hand.stroke((5, 100), (5, 110), lift=False)
    hand.page.wait_for_timeout(500)  # then a part of the stroke is sent
    hand.page.mouse.move(*hand.place(8, 140))
    counted = "Object.values(hedgerow.app.image.pixels).reduce((sum, each) => sum + each, 0)"
    hand.until(f"before => {counted} > before", before)
    hand.page.wait_for_timeout(100)
    assert hand.run("told") == 0
    hand.page.mouse.up()
    hand.until("told > 0")
    hand.saved()
    hand.press("Control+z")
