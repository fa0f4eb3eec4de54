"""One browser and one server for each module of tests: the real command, driven through the real page."""

from contextlib import contextmanager

import pytest

from browsing import FLAGS, Hand, Paint, browser_path
from helpers.browsing import write_images


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


@pytest.fixture(scope="module")
def server(chromium, tmp_path_factory):
    """A server of three small images, which are painted on by all tests of a module."""
    folder = tmp_path_factory.mktemp("paint")
    write_images(folder / "images")
    with Paint(folder / "images", folder / "project") as running:
        yield running


@contextmanager
def _windows(chromium):
    """Opens the page in windows of their own: opened(server) -> Hand. Errors of scripts fail the test."""
    contexts, problems = [], []

    def opened(server, hint=False, context=None, **options):
        if context is None:
            options = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
            context = chromium.new_context(**options)
            contexts.append(context)
            if not hint:
                context.add_init_script("localStorage.setItem('hedgerow-hint-seen', 'true')")
        page = context.new_page()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(server.address)
        hand = Hand(page)
        hand.ready()
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
