"""axe-core finds no fault in the main states of the page, in both themes."""

import pytest

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


def test_the_theme_is_that_of_the_system_until_one_is_chosen(open_page, server):
    hand = open_page(server, color_scheme="light")
    theme = lambda: hand.run("document.documentElement.dataset.theme")  # noqa: E731
    assert theme() == "light"
    hand.page.emulate_media(color_scheme="dark")
    hand.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    hand.page.click("#theme")
    assert theme() == "light"
    hand.page.reload()
    assert theme() == "light"
    hand.page.emulate_media(color_scheme="light")
    hand.page.click("#theme")
    assert theme() == "dark"
