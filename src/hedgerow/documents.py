"""Reads JSON and TOML that may be hostile: the JSON in model files, and files that users write."""

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_NESTING = 16
MAX_TEXT = 200  # characters of any text in a model file
MAX_DOCUMENT_BYTES = 2**20  # of a user's file
MAX_DESCRIPTION = 2**24  # characters that describe a model; a million empty lists take 100 MB
# The time that `tomllib` needs, and some of its memory, grow with the squares of these.
MAX_KEY_PARTS = 8  # of a key such as a.b.c
MAX_LITERAL = 10_000  # characters of a text
MAX_WORD = 1000  # characters of a number or of a key without quotes
# Texts and comments, in which brackets and dots have no meaning; unfinished ones reach to the end of the line or file.
_TEXTS = re.compile(
    r'"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5}|\Z)|'
    r"'''.*?(?:'{3,5}|\Z)|"
    r'"(?:[^"\\\n]|\\[^\n])*"?|'
    r"'[^'\n]*'?|"
    r"#[^\n]*",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?:\.[^.,=\[\]{{}}\n]*){{{MAX_KEY_PARTS}}}")


def read_document(text: str) -> Any:
    """The content of a JSON text; raises ValueError if Hedgerow could not have written it.

    Texts in it may be shown to a user, so they must be short, and free of characters that control a terminal.
    """
    if len(text) > MAX_DESCRIPTION:
        raise ValueError(f"its description has {len(text):,} characters, expected at most {MAX_DESCRIPTION:,}")
    try:
        document = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_real, object_pairs_hook=_table)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its description is not JSON that Hedgerow writes") from error
    for value in _values(document, MAX_NESTING, "its description"):
        if isinstance(value, str) and (len(value) > MAX_TEXT or not value.isprintable()):
            raise ValueError("a text in it is too long or not printable")
    return document


def read_user_text(path: Path) -> str:
    """The content of a user's text file. Raises OSError, or a ValueError with a short reason."""
    kind = os.stat(path).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # opening a pipe could wait forever; opening a folder fails
        raise ValueError("it is a pipe or a device, expected a file")
    with open(path, "rb") as file:
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"it has more than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors write a mark first
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text; save it as UTF-8") from error


def read_user_document(path: Path) -> Any:
    """The content of a user's file: JSON if it ends in .json, else TOML. Raises OSError, or a ValueError with a short
    reason."""
    text = read_user_text(path)
    try:
        document = json.loads(text, parse_int=_whole) if path.suffix.lower() == ".json" else _parsed_toml(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    for value in _values(document, MAX_NESTING + MAX_KEY_PARTS, "it"):
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError("a number in it is out of range")
        if isinstance(value, str) and len(value) > MAX_LITERAL:
            raise ValueError(f"a text in it has more than {MAX_LITERAL:,} characters")
    return document


def _parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML; refuse what would take `tomllib` minutes or gigabytes."""
    if any(len(match[0]) > MAX_LITERAL for match in _TEXTS.finditer(text)):
        raise ValueError(f"a text in it has more than {MAX_LITERAL:,} characters")
    bare = _TEXTS.sub("_", text)
    if re.search(rf"\w{{{MAX_WORD + 1}}}", bare):
        raise ValueError(f"a number or a key in it has more than {MAX_WORD:,} characters")
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key in it has more than {MAX_KEY_PARTS} parts")
    nesting = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        nesting += 1 if bracket in "[{" else -1
        if nesting > MAX_NESTING:
            raise ValueError("it is nested too deeply")
    return tomllib.loads(text)


def _values(document: Any, max_nesting: int, subject: str) -> Iterator[Any]:
    """All keys and values of a document, including lists and tables."""
    waiting = [(document, 1)]
    while waiting:
        value, nesting = waiting.pop()
        if nesting > max_nesting:
            raise ValueError(f"{subject} is nested too deeply")
        yield value
        inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(item, nesting + 1) for item in inside]


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("its description contains a key twice")
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
