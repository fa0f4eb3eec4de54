"""Messages from the page: every field is known, checked and bounded; anything else is refused in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from hedgerow.errors import InputError

MAX_RADIUS, MAX_POINTS, MAX_PAINTED_CLASSES, MAX_FILL = 512, 4096, 64, 2**22
MAX_BYTES = 2**18  # of a message
MAX_SIDE = 200_000  # pixels of an image, and the limit of positions in it; far more than can be read
MAX_PAINTED_NAME = 60
MAX_CONTRASTS = 100  # images whose contrast is kept
MASK_TOOLS = ("smart", "wand", "accept", "accept-class")  # whose pixels follow the image or its segmentation
TOOLS = ("brush", "eraser", "line", "polygon", "fill", *MASK_TOOLS)
MASK_TOOL = "mask"  # the tool of an entry of the journal that holds its pixels
EXPORTED = ("labels", "segmentation", "probabilities", "overlays", "model", "report", "table")
LIMITS = {"radius": MAX_RADIUS, "points": MAX_POINTS, "classes": MAX_PAINTED_CLASSES, "fill": MAX_FILL}

Check = Callable[[Any], Any]


class Refused(InputError):
    """A message that is refused. id: of its stroke; asks: the pixels of a fill that is done if the user confirms it"""

    def __init__(self, why: str, id: str | None = None, asks: int | None = None) -> None:
        super().__init__(why)
        self.id, self.asks = id, asks


def _must(holds: Callable[[Any], bool], expected: str, convert: Check = lambda value: value) -> Check:
    """A check that refuses other values, and converts the others."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(expected)
        return convert(value)

    return check


def _integer(low: int, high: int) -> Check:
    return _must(lambda value: type(value) is int and low <= value <= high, f"a whole number from {low} to {high}")


def _eighths(low: float, high: float) -> Check:
    # The limits come first: a number of 400 digits cannot become a float. NaN is within no limits.
    return _must(
        lambda value: type(value) in (int, float) and low <= value <= high and value * 8 == int(value * 8),
        f"a multiple of 1/8 from {low:g} to {high:g}",
        float,
    )


def _text(max_length: int) -> Check:
    return _must(
        lambda value: isinstance(value, str) and 0 < len(value) <= max_length and value.isprintable(),
        f"1 to {max_length} printable characters",
    )


def _one_of(*allowed: str) -> Check:
    return _must(lambda value: isinstance(value, str) and value in allowed, f"one of {', '.join(allowed)}")


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _matching(pattern: str, expected: str) -> Check:
    """A text of this pattern, in small letters."""
    return _must(lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)), expected, str.lower)


def _one_of_ways(*others: str) -> Check:
    """A way to improve a model, or one of the other words."""
    ways = "|".join(("refine", "deep", *others))
    return _matching(f"{ways}|encoder:[a-z0-9_.-]{{1,40}}", "refine, deep or encoder:NAME")


def _list(check: Check, min_length: int, max_length: int) -> Check:
    return _must(
        lambda value: isinstance(value, list) and min_length <= len(value) <= max_length,
        f"a list of {min_length} to {max_length}",
        lambda items: [check(item) for item in items],
    )


def _span(value: Any) -> tuple[int, int]:
    first, end = _list(_POSITION, 2, 2)(value)
    if end <= first:
        raise ValueError("two whole numbers, the second one larger")
    return first, end


_FLAG = _must(lambda value: type(value) is bool, "true or false")
_FILE_NAME = _must(lambda value: isinstance(value, str) and 0 < len(value) <= 255, "the name of a file")
_SECONDS = _must(lambda value: type(value) in (int, float) and 0 <= value < 2**40, "a time in seconds", float)
_ID = _text(64)
_IMAGE = _integer(0, 99_999)
_CLASS = _integer(0, 254)
_MODEL = _integer(1, 99_999)
_PAINT = _matching("[0-9a-f]{0,16}", "a state of the paint")
_POSITION = _integer(-MAX_SIDE, 2 * MAX_SIDE)
_POINT = _list(_eighths(-MAX_SIDE, 2 * MAX_SIDE), 2, 2)


def _contrast(value: Any) -> dict[str, Any]:
    return _checked_fields(value, {"image": _FILE_NAME, "channels": _list(_channel, 1, 64)})


def _channel(value: Any) -> dict[str, Any]:
    return _checked_fields(value, {"on": _FLAG, "colour": _COLOUR, "low": _BRIGHTNESS, "high": _BRIGHTNESS})


_BRIGHTNESS = _must(lambda value: type(value) in (int, float) and -1e6 <= value <= 1e6, "a brightness")
_COLOUR = _matching("#[0-9a-fA-F]{6}", "a colour such as #4477aa")

Fields = dict[str, Check]
"""The check of each field; a field whose name ends in a question mark may be missing."""

FIELDS: dict[str, Fields] = {
    "view": {"image": _IMAGE, "level": _integer(0, 20), "rows": _span, "cols": _span},
    "paint": {
        "id": _ID,
        "image": _IMAGE,
        "tool": _one_of(*TOOLS),
        "class?": _or_null(_CLASS),
        "radius?": _or_null(_eighths(0, MAX_RADIUS)),
        "points": _list(_POINT, 1, MAX_POINTS),
        "joins?": _or_null(_ID),
        "within?": _or_null(_list(_POSITION, 4, 4)),
        "most?": _integer(1, MAX_FILL),
        "tolerance?": _integer(1, 100),
    },
    "undo": {"id?": _ID},
    "redo": {},
    "class": {
        "id?": _or_null(_CLASS),
        "name?": _text(MAX_PAINTED_NAME),
        "colour?": _COLOUR,
        "hidden?": _FLAG,
        "locked?": _FLAG,
        "place?": _integer(0, MAX_PAINTED_CLASSES),
    },
    "merge": {"id": _CLASS, "into": _or_null(_CLASS)},
    "live": {"on": _FLAG},
    "ping": {},
    "keep": {
        "image?": _FILE_NAME,
        "class?": _CLASS,
        "tool?": _one_of(*TOOLS, "pan"),
        "radius?": _eighths(0, MAX_RADIUS),
        "overlay?": _text(20),
        "stroke-opacity?": _must(lambda value: type(value) in (int, float) and 0 <= value <= 1, "0 to 1"),
        "opacities?": _list(
            _list(_must(lambda value: isinstance(value, str | int | float), "a name or a number"), 2, 2), 0, 9
        ),
        "contrast?": _list(_contrast, 0, MAX_CONTRASTS),
        "theme?": _one_of("dark", "light"),
        "hint-seen?": _FLAG,
        "letters?": _FLAG,
        "export?": _list(_one_of(*EXPORTED), 0, len(EXPORTED)),
    },
    "next": {"image?": _or_null(_IMAGE), "skip?": _list(_list(_POSITION, 2, 2), 0, 200)},
    "train": {},
    "improve": {"how": _one_of_ways()},
    "model": {"number": _or_null(_MODEL)},
    "cancel": {"job?": _one_of("train", "improve", "export")},
    "export": {"what": _list(_one_of(*EXPORTED), 1, len(EXPORTED))},
}
# An entry of the journal is a message with the name of the image instead of its number, the classes that were locked,
# and the time.
_ENTRY_FIELDS: dict[str, Fields] = {
    "paint": {
        **FIELDS["paint"],
        "image": _FILE_NAME,
        "locked": _list(_CLASS, 0, MAX_PAINTED_CLASSES),
        "at": _SECONDS,
        "tool": _one_of(*(tool for tool in TOOLS if tool not in MASK_TOOLS), MASK_TOOL),
        "mask?": _must(lambda value: isinstance(value, str), "a text"),
    },
    "undo": {},
    "redo": {},
}
# The items of project.json.
_ITEM_FIELDS: dict[str, Fields] = {
    "class": {**{name.rstrip("?"): check for name, check in FIELDS["class"].items() if name != "place?"}, "id": _CLASS},
    "model": {"number": _MODEL, "how": _one_of_ways("train"), "name": _text(200), "text": _text(400), "paint": _PAINT},
    "chosen": {"model": _or_null(_MODEL), "paint": _PAINT},
    "page": FIELDS["keep"],
}


def parse(text: str | bytes) -> dict[str, Any]:
    """A checked message; raises Refused."""
    if isinstance(text, bytes):
        raise Refused("a message is binary, not text; reload the page.")
    if len(text) > MAX_BYTES:
        raise Refused(f"a message has {len(text):,} bytes; at most {MAX_BYTES:,} are read.")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as problem:  # also: a number of 5,000 digits
        raise Refused("a message is not JSON; reload the page.") from problem
    if not isinstance(message, dict):
        raise Refused("a message is not a JSON object; reload the page.")
    action = message.get("do")
    id = message.get("id")
    if action not in ("paint", "undo") or not isinstance(id, str) or len(id) > 64:
        id = None
    if not isinstance(action, str) or action not in FIELDS:
        raise Refused("a message has no known type; reload the page.", id)
    try:
        return _checked(message, FIELDS)
    except ValueError as problem:
        raise Refused(f"a message to {action} {problem}; reload the page.", id) from problem


def checked_entry(entry: Any) -> dict[str, Any]:
    """A checked entry of the journal; raises Refused."""
    try:
        return _checked(entry, _ENTRY_FIELDS)
    except ValueError as problem:
        raise Refused(f"it {problem}") from problem


def checked_item(kind: str, values: Any) -> dict[str, Any]:
    """The checked fields of an item of project.json; raises Refused."""
    try:
        return _checked_fields(values, _ITEM_FIELDS[kind])
    except ValueError as problem:
        raise Refused(f"a {kind} {problem}") from problem


def checked_items(kind: str, values: Any) -> list[dict[str, Any]]:
    """The checked items of a list in project.json; raises Refused."""
    if not isinstance(values, list):
        raise Refused(f"it has no list for each {kind}")
    return [checked_item(kind, each) for each in values]


def _checked(message: Any, actions: dict[str, Fields]) -> dict[str, Any]:
    """The checked fields of a message or an entry. Raises ValueError with the end of a sentence about it: "has ..."."""
    action = message.get("do") if isinstance(message, dict) else None
    if not isinstance(action, str) or action not in actions:
        raise ValueError("has no known type")
    checked = _checked_fields(message, {"do": _one_of(action), **actions[action]})
    if action == "paint":
        _check_stroke(checked)
    return checked


def _checked_fields(values: Any, fields: Fields) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError("is not a JSON object")
    checks = {name.rstrip("?"): check for name, check in fields.items()}
    unknown = sorted(set(values) - set(checks))
    if unknown:
        raise ValueError(f"has the unknown field {unknown[0][:40]!r}")
    missing = [name for name in fields if name not in values and not name.endswith("?")]
    if missing:
        raise ValueError(f"has no field {missing[0]}")
    checked = {}
    for name in (name for name in checks if name in values):
        try:
            checked[name] = checks[name](values[name])
        except ValueError as problem:
            raise ValueError(f"has a field {name} that is not {problem}") from problem
    return checked


def _check_stroke(stroke: dict[str, Any]) -> None:
    """Check that a stroke has the fields that its tool needs, and clear those that the tool ignores."""
    tool = stroke["tool"]
    if tool in ("eraser", "accept"):
        stroke["class"] = None
    elif stroke.get("class") is None and tool != MASK_TOOL:
        raise ValueError(f"is a stroke with the tool {tool} and has no class")
    if tool in ("polygon", "fill", "wand", "accept", "accept-class", MASK_TOOL):
        stroke["radius"] = None
    elif stroke.get("radius") is None:
        raise ValueError(f"is a stroke with the tool {tool} and has no radius")
    if tool == "fill" and len(stroke["points"]) != 1:
        raise ValueError(f"is a fill and has {len(stroke['points'])} points, not one")
    if tool in ("fill", "wand", "accept", MASK_TOOL) and stroke.get("within") is None:
        raise ValueError(f"is a {tool} and has no field within")
    if (tool == "wand" and stroke.get("tolerance") is None) or (tool == MASK_TOOL and stroke.get("mask") is None):
        raise ValueError(f"is a {tool} without its tolerance or mask")
