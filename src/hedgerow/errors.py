"""The errors a user may encounter. Each message says what was given, what was expected, and the remedy."""

import os
import re
from collections.abc import Sequence
from typing import Any

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/{1,2}\S+")
# A password may hold a slash; what follows a colon and is digits only is a port.
_PASSWORD = re.compile(r"^([^:]+:/{1,2})(?:[^/@'\"]+|[^/:@'\"]*:(?![0-9]+/)[^@'\"]*)@")
_VALUE = re.compile(r"([?&#][^=&\s'\"]+=)[^&\s'\"#]+(?<![:;,])")


def printable(text: str) -> str:
    """The text with a question mark for each character that has no shape on the screen."""
    return "".join(c if c.isprintable() else "?" for c in text)


def masked(text: str) -> str:
    """The text with stars for passwords and keys in addresses; any value of a query may be one."""
    return _ADDRESS.sub(lambda address: _VALUE.sub(r"\1***", _PASSWORD.sub(r"\1***@", address[0])), text)


class HedgerowError(Exception):
    """Anything Hedgerow refuses; the command line prints its message as one sentence and exits 2."""

    def __str__(self) -> str:
        return masked(printable(super().__str__()))  # a name may hold characters that command the terminal


class InputError(HedgerowError):
    """An image, a label map or a folder that cannot be used."""


class QuestionError(InputError):
    """Something that only the user can decide: a question, and for each answer its meaning and what to add.

    answers: (meaning, option of the command line, argument in Python)
    """

    def __init__(self, question: str, answers: Sequence[tuple[str, str, str]]) -> None:
        self.question, self.answers = question, tuple(answers)
        super().__init__(self.asked(""))

    def asked(self, command: str) -> str:
        """The question with what to do for each answer; with a command, the whole of it to type."""
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
    """Raise ModelError unless a condition on a model file holds; the complaint refers to the file as "it"."""
    if not holds:
        raise ModelError(f"{complaint}, {DAMAGED}.")


class DivergenceError(HedgerowError):
    """Refinement diverged; `network` is the last good one."""

    def __init__(self, message: str, network: object) -> None:
        super().__init__(message)
        self.network = network


def one_line(problem: Exception) -> str:
    """The text of an exception as part of one sentence."""
    text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    text = masked(" ".join(text.split())).rstrip(".") or type(problem).__name__  # before it is cut
    return text if len(text) <= 200 else text[:197] + "..."


def shown(value: Any, max_length: int = 100) -> str:
    """A value as part of a sentence, of so many characters at most."""
    text = repr(value)
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def one_path(path: str | os.PathLike[str]) -> str:
    """A path as part of a sentence: printable, and not too long."""
    text = printable(os.fspath(path))
    return text if len(text) <= 200 else f"{text[:100]}...{text[-60:]}"
