"""The JSON text of a file that may have been made to deceive: bounded numbers, printable words, no riddles."""

import json
import math
from typing import Any

MAX_NESTING = 16
MAX_TEXT = 200  # characters of a name or of any other text


def read_document(text: str) -> Any:
    """What a JSON text holds; a ValueError says why it is none that Hedgerow writes."""
    try:
        found = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_real, object_pairs_hook=_table)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its description is no text that Hedgerow writes") from error
    _check(found)
    return found


def _check(document: Any) -> None:
    """Every text may be shown to someone, so it is short, and holds nothing that commands a terminal."""
    waiting = [(document, 1)]
    while waiting:
        value, nesting = waiting.pop()
        if nesting > MAX_NESTING:
            raise ValueError("its description is nested too deeply")
        if isinstance(value, str) and (len(value) > MAX_TEXT or not value.isprintable()):
            raise ValueError("a text in it is too long or not printable")
        inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        waiting += [(one, nesting + 1) for one in inside]


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("its description says something twice")
    return table


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError("a number in it is out of range")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number in it is out of range")
    return number
