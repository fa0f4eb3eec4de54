"""axe-core finds no fault in the main states of the page, in both themes."""

import io

import numpy as np
import pytest
from PIL import Image

STATES = ("first steps", "at work", "export", "keys", "better", "renaming", "server away")
MAIN_STATES = ("at work", "export", "better", "keys")  # the first steps are still shown in the first


@pytest.fixture
def axe():
    package = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    return package.Axe()


def enter(hand, state):
    """Brings the page into a state."""
    page = hand.page
    if state == "at work":
        for place, start in ((1, (30, 15)), (2, (30, 160))):
            hand.choose(place)
            hand.stroke(start, (60, start[1] + 20))
        hand.saved()
        page.get_by_role("radio", name="Probability").click()
    elif state == "export":
        page.click("#export")
    elif state == "keys":
        page.click("#help")
    elif state == "better":
        page.click("#improve")
    elif state == "renaming":
        page.locator(".class-name").first.dblclick()
    elif state == "server away":
        hand.run("hedgerow.app.emit('connection', {open: false})")
        hand.run("hedgerow.app.notify('Something did not work.', 'error')")


def violations(axe, page):
    return [
        f"{each['id']}: {node['html'][:160]}: {node['failureSummary'][:200]}"
        for each in axe.run(page).response["violations"]
        for node in each["nodes"]
    ]


def check(hand, axe, states):
    """All rules in both themes."""
    problems = []
    for state in states:
        enter(hand, state)
        for theme in ("dark", "light"):
            hand.run("theme => { document.documentElement.dataset.theme = theme; }", theme)
            problems += [f"{state}, {theme}: {each}" for each in violations(axe, hand.page)]
        hand.run("delete document.documentElement.dataset.theme")
        hand.page.keyboard.press("Escape")
        hand.run("document.querySelector('dialog[open]')?.close()")
    assert not problems, "\n".join(problems)


def test_axe_finds_nothing(open_page, server, axe):
    check(open_page(server, hint=True, color_scheme="dark"), axe, MAIN_STATES)


@pytest.mark.slow
def test_axe_finds_nothing_in_any_state(open_page, server, axe):
    check(open_page(server, hint=True, color_scheme="dark"), axe, STATES)


def pixels(page, selector):
    """(H,W,3): the element as it is drawn."""
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB"), np.int32)


def test_forced_colours_show_what_is_chosen(open_page, server):
    hand = open_page(server, forced_colors="active")
    page = hand.page
    page.mouse.move(500, 300)

    def differs(one, other):
        first, second = (pixels(page, selector) for selector in (one, other))
        low = [min(sides) for sides in zip(first.shape, second.shape, strict=True)]
        return (np.abs(first[: low[0], : low[1]] - second[: low[0], : low[1]]).sum(axis=2) > 60).mean()

    assert differs("#tool-brush", "#tool-line") > 0.4  # pressed
    assert differs("[data-mode=classes]", "[data-mode=outlines]") > 0.4
    assert differs(".class.chosen", ".class:not(.chosen)") > 0.02
    for own in hand.run("hedgerow.app.classes.map(({id, colour}) => [id, colour])"):
        shown = pixels(page, f"[data-id='{own[0]}'] .swatch").reshape(-1, 3)
        wanted = [int(own[1][i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(shown - wanted).sum(axis=1) < 12).mean() > 0.4
    on = pixels(page, ".track")
    page.locator("label.switch").click()
    hand.until("!hedgerow.app.live", patience=5)
    off = pixels(page, ".track")
    assert (np.abs(on - off).sum(axis=2) > 60).mean() > 0.3
    assert len(np.unique(off.reshape(-1, 3), axis=0)) > 1
    page.locator("label.switch").click()


def test_the_theme_is_that_of_the_system_until_one_is_chosen(open_page, server):
    hand = open_page(server, color_scheme="light")
    theme = lambda: hand.run("document.documentElement.dataset.theme")  # noqa: E731
    assert theme() == "light"
    hand.page.emulate_media(color_scheme="dark")
    hand.until("document.documentElement.dataset.theme === 'dark'", patience=5)
    hand.page.click("#theme")
    assert theme() == "light"
    hand.page.reload()
    assert theme() == "light"
    hand.page.emulate_media(color_scheme="light")
    hand.page.click("#theme")
    assert theme() == "dark"
