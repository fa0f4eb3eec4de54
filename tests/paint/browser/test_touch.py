"""Fingers and a pen on a tablet: one paints, two move and zoom."""

import pytest


@pytest.fixture(scope="module")
def tablet(open_window, server):
    hand = open_window(server, viewport={"width": 1024, "height": 768}, has_touch=True)
    hand.tools = hand.page.context.new_cdp_session(hand.page)
    return hand


def touch(hand, kind, *places):
    points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
    hand.tools.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})


def test_one_finger_paints(tablet):
    tablet.choose(2)
    touch(tablet, "Start", tablet.place(40, 40))
    for col in (50, 60, 70):
        touch(tablet, "Move", tablet.place(40, col))
    touch(tablet, "End")
    tablet.saved()
    assert (tablet.labels()[40, 42:68] == tablet.run("hedgerow.app.classId")).all()


def test_two_fingers_zoom_and_paint_nothing(tablet):
    tablet.run("hedgerow.stage.view.fit()")
    before, scale = tablet.labels(), tablet.run("hedgerow.stage.view.scale")
    middle = tablet.place(75, 100)
    for away in range(20, 120, 20):
        places = [(middle[0] - away, middle[1]), (middle[0] + away, middle[1])]
        if away == 20:
            touch(tablet, "Start", places[0])
        touch(tablet, "Start" if away == 20 else "Move", *places)
    touch(tablet, "End")
    assert tablet.run("hedgerow.stage.view.scale") > 2 * scale
    tablet.saved()
    assert (tablet.labels() == before).all()
    tablet.run("hedgerow.stage.view.fit()")


def test_a_pen_paints_and_then_a_finger_moves(tablet):
    tablet.run("hedgerow.stage.view.zoomBy(2)")
    x, y = tablet.place(75, 100)
    mouse = {"x": x, "y": y, "button": "left", "buttons": 1, "pointerType": "pen", "clickCount": 1}
    undo = tablet.run("hedgerow.app.undo")
    tablet.tools.send("Input.dispatchMouseEvent", {"type": "mousePressed", **mouse})
    tablet.tools.send("Input.dispatchMouseEvent", {"type": "mouseMoved", **mouse, "x": x + 30})
    tablet.tools.send("Input.dispatchMouseEvent", {"type": "mouseReleased", **mouse, "x": x + 30})
    tablet.until("undo => hedgerow.app.undo === undo + 1", undo)
    col = tablet.run("hedgerow.stage.view.col")
    touch(tablet, "Start", (400, 300))
    touch(tablet, "Move", (440, 300))
    touch(tablet, "End")
    assert tablet.run("hedgerow.stage.view.col") < col
    assert tablet.run("hedgerow.app.undo") == undo + 1
