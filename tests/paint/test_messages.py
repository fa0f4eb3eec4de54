"""The messages that a page may send; anything else is refused in one sentence."""

import json

import pytest

from hedgerow.paint.messages import MAX_BYTES, MAX_POINTS, Refused, parse
from helpers.paint import stroke

RIGHT = [
    {"do": "view", "image": 0, "level": 2, "rows": [0, 10], "cols": [-5, 10]},
    stroke(),
    stroke(tool="eraser"),
    stroke(tool="polygon"),
    stroke(tool="fill", points=[[1, 2]], within=[0, 9, 0, 9]),
    stroke(joins="u0"),
    {"do": "undo"},
    {"do": "redo"},
    {"do": "class", "id": None, "name": "cell", "colour": "#AA00ff"},
    {"do": "class", "id": 3, "locked": True, "hidden": False},
    {"do": "live", "on": False},
    {"do": "next", "image": None},
    {"do": "train"},
    {"do": "improve", "how": "encoder:lite0"},
    {"do": "cancel", "job": "improve"},
    {"do": "export", "what": ["labels", "table"]},
]
WRONG = {
    "not JSON": "{",
    "not an object": "[1]",
    "nothing known": '{"do": "shell"}',
    "no do": "{}",
    "do is a list": '{"do": ["undo"]}',
    "unknown field": {"do": "undo", "path": "/etc/passwd"},
    "missing field": {"do": "live"},
    "image is negative": stroke(image=-1),
    "image is a fraction": stroke(image=0.5),
    "image is a truth value": stroke(image=True),
    "radius too large": stroke(radius=512.125),
    "radius is no multiple": stroke(radius=0.3),
    "radius is infinite": '{"do":"paint","id":"u","image":0,"tool":"brush","class":1,"radius":1e999,"points":[[1,1]]}',
    "radius is missing": {k: v for k, v in stroke().items() if k != "radius"},
    "class is missing": {k: v for k, v in stroke().items() if k != "class"},
    "class is 255": stroke(value=255),
    "no points": stroke(points=[]),
    "too many points": stroke(points=[[1, 1]] * (MAX_POINTS + 1)),
    "points of three": stroke(points=[[1, 1, 1]]),
    "points far away": stroke(points=[[1e12, 1]]),
    "points that are no numbers": stroke(points=[["1", 1]]),
    "points that are NaN": '{"do":"paint","id":"u","image":0,"tool":"brush","class":1,"radius":1,"points":[[NaN,1]]}',
    "fill of two points": stroke(tool="fill", within=[0, 9, 0, 9]),
    "unknown tool": stroke(tool="spray"),
    "id too long": stroke(id="u" * 65),
    "name too long": {"do": "class", "id": 0, "name": "n" * 61},
    "name that commands": {"do": "class", "id": 0, "name": "\x1b[2J"},
    "colour that is none": {"do": "class", "id": 0, "colour": "red;background:url(x)"},
    "rows the wrong way": {"do": "view", "image": 0, "level": 0, "rows": [9, 3], "cols": [0, 1]},
    "level too high": {"do": "view", "image": 0, "level": 99, "rows": [0, 1], "cols": [0, 1]},
    "improve by a path": {"do": "improve", "how": "encoder:../../x"},
    "export of something else": {"do": "export", "what": ["/etc/passwd"]},
    "export of nothing": {"do": "export", "what": []},
    "too long": " " * (MAX_BYTES + 1),
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("message", RIGHT, ids=lambda message: message["do"])
def test_what_the_page_says_is_understood(message):
    assert parse(json.dumps(message))["do"] == message["do"]


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_refused_in_one_sentence(name):
    message = WRONG[name]
    with pytest.raises(Refused) as refusal:
        parse(message if isinstance(message, str) else json.dumps(message))
    text = str(refusal.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 200


def test_a_refusal_names_its_stroke():
    with pytest.raises(Refused) as refusal:
        parse(json.dumps(stroke(id="u7", radius=-1)))
    assert refusal.value.id == "u7"
