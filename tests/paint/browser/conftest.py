"""One browser and one server for all tests: the real command, driven through the real page."""

from contextlib import contextmanager

import pytest

from browsing import FLAGS, Hand, Paint, browser_path
from helpers.browsing import PLAIN, SMALL, write_images


@pytest.fixture(scope="session")
def chromium():
    """A browser without a window; skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    for package in ("starlette", "uvicorn", "websockets"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'hedgerow[paint]'")
    path = browser_path()
    if path is None:
        pytest.skip("there is no Chromium to drive: install Debian's package chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(chromium, tmp_path_factory):
    """A server with small images, which all tests paint on."""
    folder = tmp_path_factory.mktemp("paint")
    write_images(folder / "images")
    write_images(folder / "images", SMALL, ("d.png",))
    with Paint(folder / "images", folder / "project", before=PLAIN) as running:
        yield running


def home(server):
    return server.address.partition("//")[2].partition("/")[0]


@contextmanager
def _windows(chromium):
    """Opens the page in new windows: opened(server) -> Hand.

    Errors of scripts, what the page's policy refuses and requests to anywhere else fail the test.
    """
    contexts, problems = [], []

    def opened(server, hint=False, context=None, as_left=False, **options):
        if context is None:
            options = {"viewport": {"width": 1100, "height": 700}, "reduced_motion": "reduce", **options}
            context = chromium.new_context(**options)
            contexts.append(context)
            if not hint:
                context.add_init_script("localStorage.setItem('hedgerow-hint-seen', 'true')")
        page = context.new_page()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda told: problems.append(told.text) if "Content Security Policy" in told.text else None)
        page.on("request", lambda asked: problems.append(asked.url) if home(server) not in asked.url else None)
        page.goto(server.address)
        hand = Hand(page)
        hand.ready()
        if not as_left:
            hand.run(
                "{ const {app} = hedgerow; app.setTool('brush'); app.setRadius(6); app.setClass(0);"
                " app.setOverlay({mode: 'classes'}); app.show(0); }"
            )
        return hand

    yield opened
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def open_page(chromium):
    """Opens windows for one test."""
    with _windows(chromium) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_window(chromium):
    """Opens windows for all tests of a module."""
    with _windows(chromium) as opened:
        yield opened
