"""The page to paint on, measured in the browser: from the end of a stroke to the new overlay on the screen, and what a
frame of the brush takes; beside scikit-learn's forest on the same features.

Strokes are drawn with the real mouse on the page of `hedgerow paint`, and taken back after they are timed, so that the
number of painted pixels stays. Visible: the first overlay of what is on the screen. Whole: the first overlay of the
whole image. Both are counted when the frame that shows all of their tiles is drawn.

A frame of the brush: what the page's scripts take between two frames, for the pointer, for drawing, and for whatever
else comes in (messages, tiles); and how far frames are apart, of which a screen of 60 Hz has one every 16.7 ms.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from browsing import FLAGS, Hand, Paint, browser_path
from hedgerow import synthetic
from hedgerow.features.bank import Bank
from hedgerow.features.registry import fit_features
from hedgerow.forest.default_settings import QUICK_TREES
from hedgerow.images.writing import write_labels
from hedgerow.paint.code_cache import live_config
from hedgerow.threads import set_threads
from measure import THREADS, in_fresh_process, installed, require, table

TITLE = "The page to paint on"
N_CLASSES, PAINTED, N_STROKES = 3, 7_000, 50
LIMIT_VISIBLE, LIMIT_WHOLE, LIMIT_FRAME = 0.5, 1.0, 16.0
WATCH = """() => {
    const {app, stage} = hedgerow;
    const scopes = new Map();
    let shown = -1;
    globalThis.seen = [];
    const note = (what) => requestAnimationFrame(() => seen.push({what, at: performance.now()}));
    app.on("stroke-ends", () => seen.push({what: "stroke", at: performance.now()}));
    app.on("overlay-new", ({result, scope}) => {
        scopes.set(result, scope);
        if (result === shown) note(scope);  // more of the image is of this result, and the screen shows it already
    });
    stage.overlay.arrived = (result) => {
        shown = stage.overlay.complete ? result : shown;
        if (shown === result) note(scopes.get(result));
    };
    app.setRadius(3);
}"""
FRAMES = """() => {
    const {stage, session, pointer} = hedgerow;
    let other = 0, last = 0;
    globalThis.frames = {work: [], apart: []};
    const timed = (object, name) => {
        const before = object[name];
        object[name] = function (...given) {
            const start = performance.now();
            try { return before.apply(this, given); } finally { other += performance.now() - start; }
        };
    };
    timed(stage.loader.slices, "go");
    timed(session.connection.handlers, "received");
    timed(pointer, "moved");
    timed(stage, "drawNow");
    const frame = (now) => {
        if (last && hedgerow.painting.current) {
            frames.work.push(other);
            frames.apart.push(now - last);
        }
        other = 0;
        last = now;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
}"""
SHORT = 14  # pixels of the strokes that are timed, with a radius of 1: they add little to what is painted

AFTER = "seen.slice(seen.findIndex(each => each.what === 'stroke'))"  # the end of the stroke, and what was shown since


def picture(side: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A house front in grey (H,W) uint8, and which of three classes each pixel belongs to."""
    images, labels = synthetic.facades(1, (side, side), seed)
    grey = images[0].mean(axis=2)
    counts = np.bincount(labels[0].ravel())
    common = np.argsort(-counts, kind="stable")[: N_CLASSES - 1]
    truth = np.full(labels[0].shape, N_CLASSES - 1, np.uint8)
    for value, of in enumerate(common):
        truth[labels[0] == of] = value
    return grey.astype(np.uint8), truth


def strokes(truth: np.ndarray, length: int, seed: int = 0) -> Any:
    """Strokes (class, start, end) without end, each within one class as far as its ends and middle tell."""
    rng = np.random.default_rng(seed)
    size = np.array(truth.shape)
    wanted = 0
    while True:
        start = rng.uniform(0.05, 0.95, 2) * size
        angle = rng.uniform(0, 2 * np.pi)
        end = start + length * np.array([np.sin(angle), np.cos(angle)])
        if (end < 5).any() or (end > size - 5).any():
            continue
        classes = {int(truth[tuple(np.intp(start + part * (end - start)))]) for part in (0, 0.5, 1)}
        if classes == {wanted}:
            yield wanted, tuple(start), tuple(end)
            wanted = (wanted + 1) % N_CLASSES


def opened(browser: Any, server: Paint) -> Hand:
    page = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce").new_page()
    page.goto(server.address)
    hand = Hand(page)
    hand.ready()
    hand.run("localStorage.setItem('hedgerow-hint-seen', 'true')")
    return hand


def stroke_times(browser: Any, folder: Path, side: int, n_strokes: int) -> tuple[list[float], list[float], int]:
    """Seconds from the end of each stroke to the overlay of the visible part and of the whole image; painted pixels."""
    image, truth = picture(side)
    (folder / f"images{side}").mkdir()
    write_labels(folder / f"images{side}" / "front.png", image)
    with Paint(folder / f"images{side}", folder / f"project{side}", threads=THREADS) as server:
        hand = opened(browser, server)
        hand.run("hedgerow.actions.changeClass(null, {name: 'third', colour: '#228833', hidden: false, locked: false})")
        hand.until("hedgerow.app.classes.length >= 3")
        hand.run(WATCH)
        drawing, short = strokes(truth, length=side // 12), strokes(truth, SHORT, seed=2)
        painted = "Object.values(hedgerow.app.image.pixels).reduce((sum, each) => sum + each, 0)"
        while (so_far := hand.run(painted)) < PAINTED:
            is_near = so_far > 0.9 * PAINTED
            hand.run("radius => hedgerow.app.setRadius(radius)", 1 if is_near else 3)
            _draw(hand, next(short if is_near else drawing))
            hand.saved()
        hand.until("seen.some(each => each.what === 'whole' || each.what === 'full')")
        hand.run("hedgerow.app.setRadius(1)")
        drawing = strokes(truth, SHORT, seed=1)
        visible, whole = [], []
        n_painted = hand.run(painted)
        for _ in range(n_strokes):
            hand.run("seen.length = 0")
            _draw(hand, next(drawing))
            hand.until(f"{AFTER}.some(each => each.what === 'whole')")
            stroke, *shown = hand.run(AFTER)
            visible.append(next(each["at"] for each in shown if each["what"] in ("visible", "whole")) - stroke["at"])
            whole.append(next(each["at"] for each in shown if each["what"] == "whole") - stroke["at"])
            hand.run("seen.length = 0")
            hand.press("Control+z")
            hand.until("seen.some(each => each.what === 'whole')")
            hand.page.wait_for_timeout(400)  # as long as a hand needs to begin the next one
        hand.page.context.close()
    return [value / 1000 for value in visible], [value / 1000 for value in whole], n_painted


def _draw(hand: Hand, stroke: Any) -> None:
    value, start, end = stroke
    hand.choose(value + 1)
    hand.stroke(start, end)


def frame_times(browser: Any, folder: Path, side: int, moves: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of work in each frame of a brush, and between frames: near and far, with small and large brushes."""
    import tifffile

    tile = np.random.default_rng(0).integers(0, 255, (256, 256), np.uint8)
    (folder / "large").mkdir()
    path = folder / "large" / "large.tif"
    n = side // 256
    tifffile.imwrite(path, (tile for _ in range(n * n)), shape=(side, side), dtype=np.uint8, tile=(256, 256))
    frames: dict[str, dict[str, list[float]]] = {}
    with Paint(path, folder / "projectlarge", threads=THREADS) as server:
        hand = opened(browser, server)
        hand.run(FRAMES)
        hand.run("hedgerow.actions.live()")
        for name, scale, radius, is_live in (
            ("near, radius 20", 1.0, 20, False),
            ("near, radius 200", 1.0, 200, False),
            ("far, radius 512", 0.0, 512, False),
            ("near, radius 20, segmented meanwhile", 1.0, 20, True),
        ):
            hand.run("([scale, radius]) => { const {app, stage} = hedgerow; app.setRadius(radius); stage.view.fit();"
                     "if (scale) stage.view.zoomBy(scale / stage.view.scale); }", [scale, radius])  # fmt: skip
            if is_live:
                hand.choose(2)
                hand.run("hedgerow.actions.live()")
            hand.page.wait_for_timeout(6000 if is_live else 1500)
            hand.run("frames.work.length = frames.apart.length = 0")
            mouse = hand.page.mouse
            mouse.move(300, 200)
            mouse.down()
            for step in range(moves):
                mouse.move(480 + 300 * np.sin(step / 7), 380 + 220 * np.cos(step / 5))
            mouse.up()
            hand.saved()
            frames[name] = hand.run("frames")
        hand.page.context.close()
    return frames


def forest_seconds(side: int) -> float:
    """Wall seconds that scikit-learn's forest takes on the same features: growing on the paint, and the whole image."""
    from sklearn.ensemble import RandomForestClassifier

    image, truth = picture(side)
    planes = image[None].astype(np.float32)
    features, _ = fit_features([planes], live_config(1))
    require(isinstance(features, Bank), "the page's features are not the filter bank's")
    rows = features.compute(planes).reshape(features.n_features, -1).T
    rng = np.random.default_rng(0)
    painted = np.concatenate(
        [rng.choice(np.flatnonzero(truth.ravel() == value), PAINTED // N_CLASSES) for value in range(N_CLASSES)]
    )
    start = time.perf_counter()
    forest = RandomForestClassifier(QUICK_TREES, n_jobs=THREADS, random_state=0).fit(
        rows[painted], truth.ravel()[painted]
    )
    forest.predict(rows)
    return time.perf_counter() - start


def summary(values: list[float]) -> list[str]:
    return [f"{np.percentile(values, 50):.2f}", f"{np.percentile(values, 95):.2f}", f"{max(values):.2f}"]


def run(small: bool = False) -> str:
    if browser_path() is None or not installed("playwright", "starlette", "uvicorn", "websockets", "tifffile"):
        return "Not run: Chromium, playwright or the extra `paint` is not installed."
    from playwright.sync_api import sync_playwright

    set_threads(THREADS)
    sides, large, n_strokes = ((256,), 2048, 3) if small else ((1024, 4096), 16384, N_STROKES)
    rows, frames = [], {}
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        for side in sides:
            visible, whole, n_painted = stroke_times(browser, Path(folder), side, n_strokes)
            rows.append([f"{side} x {side}, {n_painted:,} painted pixels: visible part", *summary(visible)])
            rows.append([f"{side} x {side}: whole image", *summary(whole)])
        frames = frame_times(browser, Path(folder), large, 20 if small else 200)
        browser.close()
    for side in sides[:1]:
        if installed("sklearn"):
            value = f"{in_fresh_process(forest_seconds, side):.2f}"
            rows.append([f"scikit-learn, {QUICK_TREES} trees, the same features, {side} x {side}", value, "", ""])
    frame_rows = [[name, *summary(values["work"]), *summary(values["apart"])] for name, values in frames.items()]
    promise = (
        f"Seconds from the end of a stroke to the overlay on the screen, over {n_strokes} strokes. Promised for the "
        f"95th percentile at 1024 x 1024, on two quiet cores: at most {LIMIT_VISIBLE} (visible part) and "
        f"{LIMIT_WHOLE} (whole image). The row of scikit-learn is for growing and predicting once, without any page."
    )
    frame_promise = (
        f"Milliseconds of work in a frame of the brush on an image of {large} x {large} (promised: at most "
        f'{LIMIT_FRAME:.0f}), and milliseconds from one frame to the next ("apart"; a screen shows a frame every 16.7).'
    )
    headers = ["p50", "p95", "most"]
    between = [f"{name} apart" for name in headers]
    parts = [promise, table(["image", *headers], rows), frame_promise, table(["brush", *headers, *between], frame_rows)]
    return "\n\n".join(parts)
