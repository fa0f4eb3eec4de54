"""Errors that users may see. Each message states what was given, what was expected, and the remedy."""

import os
import re
from collections.abc import Sequence
from typing import Any

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/{1,2}\S+")
# A password may contain a slash; digits after a colon are a port.
_PASSWORD = re.compile(r"^([^:]+:/{1,2})(?:[^/@'\"]+|[^/:@'\"]*:(?![0-9]+/)[^@'\"]*)@")
_VALUE = re.compile(r"([?&#][^=&\s'\"]+=)[^&\s'\"#]+(?<![:;,])")


def printable(text: str) -> str:
    """The text, with a question mark in place of each character that is not printable."""
    return "".join(c if c.isprintable() else "?" for c in text)


def masked(text: str) -> str:
    """The text, with stars in place of passwords and of all values in queries of addresses, which may be keys."""
    return _ADDRESS.sub(lambda address: _VALUE.sub(r"\1***", _PASSWORD.sub(r"\1***@", address[0])), text)


class HedgerowError(Exception):
    """Anything that Hedgerow refuses. The command line prints the message as one sentence and exits with 2."""

    def __str__(self) -> str:
        return masked(printable(super().__str__()))  # a name may contain characters that control the terminal


class InputError(HedgerowError):
    """An image, a label map or a folder that cannot be used."""


class QuestionError(InputError):
    """A question that only the user can answer.

    answers: (meaning, option of the command line, argument in Python) of each
    """

    def __init__(self, question: str, answers: Sequence[tuple[str, str, str]]) -> None:
        self.question, self.answers = question, tuple(answers)
        super().__init__(self.asked(""))

    def asked(self, command: str) -> str:
        """The question, with the option to add for each answer, or the whole command to run if one is given."""
        answers = [
            f"{meaning}, {f'run {command} {option}' if command else f'add {argument} ({option})'}"
            for meaning, option, argument in self.answers
        ]
        return f"{self.question} {'; '.join(answers)}."


class ConfigError(HedgerowError):
    """A setting outside its limits."""


class ModelError(HedgerowError):
    """A model file that is damaged, foreign, or of a newer version."""


DAMAGED = "so it is damaged or was edited; copy it again"


def refuse_unless(holds: bool, complaint: str) -> None:
    """Raise ModelError unless a condition on a model file holds; the complaint calls the file "it"."""
    if not holds:
        raise ModelError(f"{complaint}, {DAMAGED}.")


class DivergenceError(HedgerowError):
    """Refinement diverged; `network` is the last good network."""

    def __init__(self, message: str, network: object) -> None:
        super().__init__(message)
        self.network = network


def one_line(problem: Exception) -> str:
    """The text of an exception, for use in a sentence."""
    text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    text = masked(" ".join(text.split())).rstrip(".") or type(problem).__name__  # before it is shortened
    return text if len(text) <= 200 else text[:197] + "..."


def shown(value: Any, max_length: int = 100) -> str:
    """A value, shortened to this length, for use in a sentence."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print numbers of thousands of digits
        text = "a number of too many digits"
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def first_few(items: Sequence[object], n: int = 3) -> str:
    """The first items of a list, and the number of the others, for use in a sentence."""
    more = f" and {len(items) - n} more" if len(items) > n else ""
    return ", ".join(map(str, items[:n])) + more


def one_path(path: str | os.PathLike[str]) -> str:
    """A path, printable and not too long, for use in a sentence."""
    text = printable(os.fspath(path))
    return text if len(text) <= 200 else f"{text[:100]}...{text[-60:]}"
