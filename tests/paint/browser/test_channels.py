"""Contrast and channels of a 16-bit image with many channels, and the requests for a large image."""

import re

import numpy as np
import pytest

from browsing import Paint
from helpers.browsing import PLAIN

SIZE, N_CHANNELS = (1100, 1300), 6


@pytest.fixture(scope="module")
def image():
    """(H,W,C) uint16: ramps of different brightness."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    ramps = [(rows * (k + 1) + columns * (N_CHANNELS - k)) * 3 + 200 * k for k in range(N_CHANNELS)]
    return np.stack(ramps, axis=2).astype(np.uint16)


@pytest.fixture(scope="module")
def hand(open_window, image, tmp_path_factory):
    folder = tmp_path_factory.mktemp("channels")
    np.save(folder / "wide.npy", image)
    with Paint(folder / "wide.npy", folder / "project", before=PLAIN) as server:
        yield open_window(server)
        server.kill()  # rather than stop it, which waits for its windows


@pytest.fixture(autouse=True)
def _as_at_first(hand):
    hand.page.click("#contrast-reset")
    hand.run("hedgerow.stage.view.fit(); hedgerow.stage.view.zoomBy(1 / hedgerow.stage.view.scale)")
    shown(hand)


def shown(hand):
    hand.until("hedgerow.stage.image.complete")


def channel(hand, number):
    return hand.run("number => hedgerow.stage.image.shown[number]", number)


def expected(image, hand, place, colours):
    """(3): the colour of a pixel shown by channels {number: (red, green, blue)}, each with its contrast."""
    total = np.zeros(3)
    for number, colour in colours.items():
        window = channel(hand, number)
        part = (image[(*place, number)] - window["low"]) / (window["high"] - window["low"])
        total += np.clip(part, 0, 1) * np.array(colour)
    return np.minimum(total, 255)


def set_slider(hand, name, value):
    hand.page.locator(f"#contrast-{name}").fill(str(value))
    shown(hand)


PLACES = ((420, 500), (550, 650), (700, 900))


def test_the_first_channel_is_shown_between_its_dark_and_bright_ends(hand, image):
    first = channel(hand, 0)
    low, high = np.percentile(image[..., 0], (0.5, 99.5))
    assert (first["on"], abs(first["low"] - low) < 60, abs(first["high"] - high) < 60) == (True, True, True)
    for place in PLACES:
        found = hand.colour("image", *place)
        assert np.abs(np.array(found[:3]) - expected(image, hand, place, {0: (255, 255, 255)})).max() <= 1
        assert found[0] == found[1] == found[2]


def test_black_and_white_are_set(hand, image):
    place = PLACES[1]
    value = int(image[(*place, 0)])
    set_slider(hand, "low", value + 50)
    assert hand.colour("image", *place)[:3] == (0, 0, 0)
    set_slider(hand, "low", 0)
    set_slider(hand, "high", value - 50)
    assert hand.colour("image", *place)[:3] == (255, 255, 255)
    assert hand.page.locator("output[for=contrast-high]").inner_text() == str(value - 50)
    set_slider(hand, "low", value + 9)  # white moves too, so that it stays above black
    assert channel(hand, 0)["high"] > channel(hand, 0)["low"]
    hand.page.click("#contrast-reset")
    shown(hand)
    assert 0 < hand.colour("image", *place)[0] < 255


def test_channels_are_added_in_their_colours(hand, image):
    page = hand.page
    page.get_by_label("Show channel 3").check()
    page.get_by_label("Colour of channel 3").fill("#ff8000")
    page.get_by_label("Show channel 1", exact=True).uncheck()
    page.get_by_label("Show channel 5").check()
    page.get_by_label("Colour of channel 5").fill("#0000ff")
    page.get_by_role("button", name="Channel 5").click()
    set_slider(hand, "high", 9000)
    shown(hand)
    assert (channel(hand, 4)["high"], channel(hand, 2)["high"] != 9000) == (9000, True)
    for place in PLACES:
        wanted = expected(image, hand, place, {2: (255, 128, 0), 4: (0, 0, 255)})
        assert np.abs(np.array(hand.colour("image", *place)[:3]) - wanted).max() <= 3
    assert page.locator(".histogram").is_visible()


def test_only_tiles_on_the_screen_are_asked_for(hand):
    asked = []
    note = lambda request: asked.append(request.url)  # noqa: E731
    hand.page.on("request", note)
    hand.run("hedgerow.stage.view.zoomBy(2)")
    shown(hand)
    hand.stroke((540, 640), (560, 660))
    hand.saved()
    hand.page.wait_for_timeout(300)
    hand.page.remove_listener("request", note)
    rows, columns = hand.run("Object.values(hedgerow.stage.view.region)")
    places = {tuple(map(int, place)) for url in asked for place in re.findall(r"/(?:tile|labels)/0/(\d+)/(\d+)", url)}
    assert places
    for row, column in places:
        assert row * 256 < rows[1]
        assert (row + 1) * 256 > rows[0]
        assert column * 256 < columns[1]
        assert (column + 1) * 256 > columns[0]
