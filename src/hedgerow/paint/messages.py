"""What a page may say: every field is known, checked and bounded, and anything else is refused in one sentence."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hedgerow.errors import InputError

MAX_RADIUS, MAX_POINTS, MAX_CLASSES, MAX_FILL = 512, 4096, 64, 2**22
MAX_BYTES = 2**18  # of a message
MAX_SIDE = 200_000  # of an image, and so of a place; far beyond what can be read
MAX_NAME = 60
TOOLS = ("brush", "eraser", "line", "polygon", "fill")
EXPORTS = ("labels", "segmentation", "probabilities", "overlays", "model", "report", "table")
LIMITS = {"radius": MAX_RADIUS, "points": MAX_POINTS, "classes": MAX_CLASSES, "fill": MAX_FILL}

Check = Callable[[Any], Any]


class Refused(InputError):
    """A message that is not obeyed; id: of the stroke it was about"""

    def __init__(self, why: str, id: str | None = None) -> None:
        super().__init__(why)
        self.id = id


@dataclass(frozen=True)
class _Field:
    check: Check
    needed: bool = True


def _whole(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def _eighths(low: float, high: float) -> Check:
    """A multiple of 1/8."""

    def check(value: Any) -> float:
        is_number = type(value) in (int, float) and math.isfinite(value)
        if not is_number or not low <= value <= high or value * 8 != int(value * 8):
            raise ValueError(f"a multiple of 1/8 from {low:g} to {high:g}")
        return float(value)

    return check


def _text(most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
            raise ValueError(f"1 to {most} printable characters")
        return value

    return check


def _one_of(*allowed: str) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value

    return check


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def _colour(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("#[0-9a-fA-F]{6}", value):
        raise ValueError("a colour such as #4477aa")
    return value.lower()


def _how(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("refine|deep|encoder:[a-z0-9_.-]{1,40}", value):
        raise ValueError("refine, deep or encoder:NAME")
    return value


def _list(check: Check, least: int, most: int) -> Check:
    def checked(value: Any) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"a list of {least} to {most}")
        return [check(one) for one in value]

    return checked


def _span(value: Any) -> tuple[int, int]:
    first, end = _list(_whole(-MAX_SIDE, 2 * MAX_SIDE), 2, 2)(value)
    if end <= first:
        raise ValueError("two whole numbers, the second one larger")
    return first, end


_ID = _text(64)
_IMAGE = _whole(0, 99_999)
_CLASS = _whole(0, 254)
_POINT = _list(_eighths(-MAX_SIDE, 2 * MAX_SIDE), 2, 2)

FIELDS: dict[str, dict[str, _Field]] = {
    "view": {
        "image": _Field(_IMAGE),
        "level": _Field(_whole(0, 20)),
        "rows": _Field(_span),
        "cols": _Field(_span),
    },
    "paint": {
        "id": _Field(_ID),
        "image": _Field(_IMAGE),
        "tool": _Field(_one_of(*TOOLS)),
        "class": _Field(_or_null(_CLASS), False),
        "radius": _Field(_or_null(_eighths(0, MAX_RADIUS)), False),
        "points": _Field(_list(_POINT, 1, MAX_POINTS)),
        "joins": _Field(_or_null(_ID), False),
        "within": _Field(_or_null(_list(_whole(-MAX_SIDE, 2 * MAX_SIDE), 4, 4)), False),
    },
    "undo": {},
    "redo": {},
    "class": {
        "id": _Field(_or_null(_CLASS), False),
        "name": _Field(_text(MAX_NAME), False),
        "colour": _Field(_colour, False),
        "hidden": _Field(_flag, False),
        "locked": _Field(_flag, False),
    },
    "live": {"on": _Field(_flag)},
    "next": {"image": _Field(_or_null(_IMAGE), False)},
    "train": {},
    "improve": {"how": _Field(_how)},
    "cancel": {"job": _Field(_one_of("train", "improve", "export"), False)},
    "export": {"what": _Field(_list(_one_of(*EXPORTS), 1, len(EXPORTS)))},
}


def parse(text: str | bytes) -> dict[str, Any]:
    """A message as a dictionary that has been checked; raises Refused."""
    if len(text) > MAX_BYTES:
        raise Refused(f"a message has {len(text):,} bytes; at most {MAX_BYTES:,} are read.")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Refused("a message is not JSON; reload the page.") from problem
    if not isinstance(message, dict):
        raise Refused("a message is not a JSON object; reload the page.")
    what = message.get("do")
    given_id = message.get("id")
    id = given_id if what == "paint" and isinstance(given_id, str) and len(given_id) <= 64 else None
    if not isinstance(what, str) or what not in FIELDS:
        raise Refused("a message asks for nothing that is known; reload the page.", id)
    fields = FIELDS[what]
    unknown = sorted(set(message) - set(fields) - {"do"})
    if unknown:
        raise Refused(f"a message to {what} has the unknown field {unknown[0][:40]!r}; reload the page.", id)
    found: dict[str, Any] = {"do": what}
    for name, field in fields.items():
        if name not in message:
            if field.needed:
                raise Refused(f"a message to {what} has no field {name}; reload the page.", id)
            continue
        try:
            found[name] = field.check(message[name])
        except (ValueError, OverflowError) as problem:
            raise Refused(f"the field {name} of a message to {what} is not {problem}.", id) from problem
    if what == "paint":
        _check_stroke(found)
    return found


def _check_stroke(stroke: dict[str, Any]) -> None:
    """A stroke has what its tool needs, and nothing that would be forgotten."""
    tool, id = stroke["tool"], stroke["id"]
    if tool == "eraser":
        stroke["class"] = None
    elif stroke.get("class") is None:
        raise Refused(f"a stroke with the tool {tool} has no class.", id)
    if tool in ("polygon", "fill"):
        stroke["radius"] = None
    elif stroke.get("radius") is None:
        raise Refused(f"a stroke with the tool {tool} has no radius.", id)
    if tool == "fill" and len(stroke["points"]) != 1:
        raise Refused(f"a fill has {len(stroke['points'])} points; it takes one.", id)
