"""The same pixels in the page, in the server and in a plain model of the labels, after 200 strokes and undos."""

import base64

import numpy as np
import pytest

from helpers.browsing import SMALL as SIZE
from helpers.plain_labels import PlainLabels

IMAGE = 3  # d.png


def random_strokes(n, seed=0):
    """Steps, a fifth of which are undo and redo; strokes as they are sent, without ids."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        if rng.random() < 0.2:
            yield {"do": rng.choice(["undo", "undo", "redo"])}
            continue
        tool = str(rng.choice(["brush", "brush", "eraser", "line", "polygon", "fill"]))
        n_points = {"line": 2, "fill": 1, "polygon": int(rng.integers(3, 8))}.get(tool, int(rng.integers(1, 9)))
        start = rng.uniform(-4, np.add(SIZE, 4))
        walk = np.cumsum(np.vstack([start, rng.normal(0, 9, (n_points - 1, 2))]), axis=0)
        points = np.round(walk * 8) / 8
        if tool == "fill":
            points = np.floor(rng.uniform(0, SIZE, (1, 2)))
        elif rng.random() < 0.3:
            points = np.round(points)  # many pixels at just the radius
        stroke = {"do": "paint", "tool": tool, "points": points.tolist(), "class": int(rng.integers(0, 2))}
        stroke["radius"] = float(rng.integers(0, 60)) / 8 if rng.random() < 0.7 else float(rng.integers(1, 8))
        if tool == "fill":
            stroke["within"] = [0, SIZE[0], 0, SIZE[1]]
        yield stroke


STEP = """step => {
    const {app, painting, session, actions} = hedgerow;
    if (step.do === "undo") return actions.undo();
    if (step.do === "redo") return actions.redo();
    app.classId = step.class;
    app.radius = step.radius;
    painting.whole(step.tool, step.points, step.within ? {within: step.within} : {});
    return btoa(String.fromCharCode(...hedgerow.stage.labels.tile(0, 0, 0).raw));
}"""

SHOWN = "btoa(String.fromCharCode(...hedgerow.stage.labels.tile(0, 0, 0).raw))"


def labels_of(text):
    """Labels (H,W) that the page shows."""
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(SIZE)


@pytest.mark.slow
def test_200_strokes_and_undos(open_page, server):
    hand = open_page(server, viewport={"width": 900, "height": 600})
    hand.run("image => hedgerow.app.show(image)", IMAGE)
    hand.run("hedgerow.app.live && hedgerow.actions.live()")  # off: the test needs only the labels
    hand.saved()
    model, before = PlainLabels(SIZE), hand.run("hedgerow.app.undo")
    for number, step in enumerate(random_strokes(200)):
        if step["do"] == "undo" and len(model.states) == 1:
            continue  # the paint of other tests stays
        seen = hand.run(STEP, step)
        if step["do"] == "paint":
            model.paint(step)
            if step["tool"] != "fill":  # drawn at once, without waiting for the server
                np.testing.assert_array_equal(labels_of(seen), model.labels, f"step {number}: {step}")
                continue
        elif step["do"] == "undo":
            model.undo()
        else:
            model.redo()
        steps = before + len(model.states) - 1
        hand.until("n => hedgerow.app.undo === n && hedgerow.session.outbox.waiting.length === 0", steps)
        hand.saved()
        np.testing.assert_array_equal(labels_of(hand.run(SHOWN)), model.labels, f"after step {number}: {step}")
    hand.until("hedgerow.session.outbox.waiting.length === 0")
    np.testing.assert_array_equal(hand.labels(IMAGE), model.labels)
    hand.page.reload()
    hand.ready()
    np.testing.assert_array_equal(hand.labels(IMAGE), model.labels)
    hand.run("hedgerow.actions.live()")
