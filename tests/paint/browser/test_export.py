"""Exports of the page: files to download, commands to continue with, and the model that these commands make."""

import io
import os
import shlex
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from helpers.browsing import PLAIN

STROKES = ((1, (20, 10), (50, 40)), (2, (20, 160), (50, 190)), (1, (100, 20), (130, 30)), (2, (100, 170), (130, 190)))


@pytest.fixture(scope="module")
def painted(open_window, server):
    """A page whose first two images are painted."""
    hand = open_window(server)
    for image in (0, 1):
        hand.run("image => hedgerow.app.show(image)", image)
        for place, *places in STROKES:
            hand.choose(place)
            hand.stroke(*places)
        hand.saved()
    return hand


def commands(page):
    return [code.inner_text() for code in page.locator(".commands code").all()]


def test_labels_are_exported_with_the_commands_to_continue(painted):
    hand = painted
    page = hand.page
    page.click("#export")
    for box in page.locator(".choices input").all():
        box.set_checked(box.get_attribute("value") == "labels")
    page.locator("#export-dialog button[type=submit]").click()
    page.wait_for_selector(".files a", timeout=60_000)
    link = page.locator(".files a").first
    with page.expect_download() as downloaded:
        link.click()
    with zipfile.ZipFile(downloaded.value.path()) as archive:
        names = [name for name in archive.namelist() if name.endswith("a.png")]
        labels = np.asarray(Image.open(io.BytesIO(archive.read(names[0]))))
    np.testing.assert_array_equal(labels, hand.labels(0))
    assert commands(page)[0].startswith("hedgerow train ")
    page.keyboard.press("Escape")


def test_train_on_all_makes_the_model_of_the_command_line(painted, server, tmp_path):
    hand = painted
    hand.run(
        "() => { hedgerow.app.on('done', message => { if (message.job === 'train') globalThis.trained = message; }); }"
    )
    hand.run("() => { hedgerow.app.on('failed', ({why}) => { globalThis.trained = {why}; }); }")
    hand.page.click("#train")
    hand.until("globalThis.trained")
    notices = hand.run("trained")
    assert "why" not in notices, notices
    words = shlex.split(notices["commands"][0])
    assert words[:2] == ["hedgerow", "train"]
    output = words.index("-o") + 1
    words[output] = str(tmp_path / "model.hedge")
    program = [sys.executable, "-c", f"{PLAIN}\nfrom hedgerow.cli import main; main()"]
    surroundings = {**os.environ, "HEDGEROW_THREADS": str(server.threads)}
    run = subprocess.run([*program, *words[1:]], capture_output=True, text=True, env=surroundings, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    address = hand.page.url.split("/?")[0].rstrip("/") + "/" + notices["files"][0]["address"]
    assert hand.page.request.get(address).body() == (tmp_path / "model.hedge").read_bytes()
