"""The command `hedgerow paint` in its own process, and a simulated user who works on its page through Playwright.

Used by benchmarks, by the pictures in the documentation, and by tests of the page.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TILE = 256
START = 60.0  # seconds until a server must have printed its address
WAIT = 120.0  # seconds: kernels may have to be compiled first
FLAGS = ("--no-sandbox", "--disable-gpu")


def browser_path():
    """The path of Chromium, or None."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path), None)


class Paint:
    """A server; `address` is what it has printed, token and all.

    before: Python to run in its process first
    options: further options of the command
    """

    def __init__(self, images, project, port=0, threads=1, before="", options=()):
        self.options = options
        self.images, self.project, self.port, self.threads, self.before = images, project, port, threads, before
        self.process, self.address = None, ""

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        log = Path(f"{self.project}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        command = f"{self.before}\nfrom hedgerow.cli import main; main()"
        arguments = [
            "paint",
            str(self.images),
            "--project",
            str(self.project),
            "--no-browser",
            "--port",
            str(self.port),
            *self.options,
        ]
        surroundings = {**os.environ, "HEDGEROW_THREADS": str(self.threads)}
        with log.open("w") as written:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, *arguments], stdout=written, stderr=subprocess.STDOUT, env=surroundings
            )
        end = time.monotonic() + START
        while not (match := re.search(r"(http://127\.0\.0\.1:(\d+)/\S*)\?token=\S+", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, f"no address after {START} seconds: {log.read_text()}"
            time.sleep(0.05)
        self.address, self.port = match[0], int(match[2])

    def kill(self):
        """Kill the server like a power cut, without any cleanup."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.kill()


class Hand:
    """A simulated user of the page, who draws strokes with the real mouse and reads what the page shows."""

    def __init__(self, page):
        self.page = page

    def run(self, script, argument=None):
        return self.page.evaluate(script, argument)

    def until(self, script, argument=None, patience=WAIT):
        """Asks again and again: Playwright's own waiting needs `eval`, which the page's policy forbids."""
        end = time.monotonic() + patience
        while not self.run(script, argument):
            assert time.monotonic() < end, f"not after {patience} seconds: {script}"
            self.page.wait_for_timeout(30)

    def ready(self):
        self.page.evaluate(
            "async () => { const script = document.querySelector('script[type=module]').src;"
            " globalThis.hedgerow = (await import(script)).page; }"  # the page itself puts nothing there
        )
        self.until("hedgerow.app.image && hedgerow.session.outbox.open")

    def place(self, row, col):
        """The position in the window of the centre of an image pixel."""
        return self.run(
            """([row, col]) => {
                const {left, top} = hedgerow.stage.root.getBoundingClientRect();
                const {x, y} = hedgerow.stage.view.toScreen(row + 0.5, col + 0.5);
                return [x + left, y + top];
            }""",
            [row, col],
        )

    def stroke(self, *places, button="left", lift=True):
        """Draw through places (row, col) with the mouse."""
        mouse = self.page.mouse
        mouse.move(*self.place(*places[0]))
        mouse.down(button=button)
        for place in places[1:]:
            mouse.move(*self.place(*place), steps=4)
        if lift:
            mouse.up(button=button)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def choose(self, place):
        """Paint with the class at this position in the list, counted from 1."""
        self.run("place => hedgerow.app.setClass(hedgerow.app.classes[place - 1].id)", place)

    def saved(self):
        """Wait until the server has answered every stroke and the page shows its labels."""
        self.until("hedgerow.session.outbox.waiting.length === 0 && hedgerow.stage.labels.complete")

    def segmented(self):
        """Wait until the overlay on the screen is complete."""
        self.until("hedgerow.stage.overlay.complete")

    def count(self):
        """The number of results that the page knows."""
        return self.run("hedgerow.stage.overlay.stamps")

    def labels(self, image=0):
        """The server's labels (H,W) of an image."""
        size = self.run("id => [hedgerow.app.picture(id).height, hedgerow.app.picture(id).width]", image)
        labels = np.full(size, 255, np.uint8)
        for row in range(0, size[0], TILE):
            for col in range(0, size[1], TILE):
                base = self.page.url.split("/?")[0].rstrip("/")
                answer = self.page.request.get(f"{base}/api/images/{image}/labels/0/{row // TILE}/{col // TILE}")
                assert answer.status in (200, 204), answer.status
                if answer.status == 200:
                    part = labels[row : row + TILE, col : col + TILE]
                    part[...] = np.frombuffer(answer.body(), np.uint8).reshape(part.shape)
        return labels

    def drawn(self, layer):
        """(H,W,4) uint8: the pixels of a layer of the stage on the screen."""
        data = self.run(
            """name => {
                hedgerow.stage.drawNow();
                const {canvas, context} = hedgerow.stage[name];
                const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
                let text = "";
                const step = 32768;
                for (let i = 0; i < data.length; i += step) text += String.fromCharCode(...data.subarray(i, i + step));
                return [canvas.height, canvas.width, btoa(text)];
            }""",
            layer,
        )
        return np.frombuffer(base64.b64decode(data[2]), np.uint8).reshape(data[0], data[1], 4)

    def colour(self, layer, row, col):
        """The colour (4) of a layer at a pixel of the image."""
        return tuple(
            self.run(
                """([name, at, across]) => {
                    const {stage} = hedgerow;
                    stage.drawNow();
                    const {x, y} = stage.view.toScreen(at + 0.5, across + 0.5);
                    const ratio = stage.view.ratio;
                    const [col, row] = [x * ratio, y * ratio].map(Math.floor);
                    return [...stage[name].context.getImageData(col, row, 1, 1).data];
                }""",
                [layer, row, col],
            )
        )
