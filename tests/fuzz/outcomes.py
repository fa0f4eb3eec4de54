"""How a case may end: with a result that holds, or with one sentence. Everything else is a failure."""

import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path

from hedgerow.errors import HedgerowError

# Of files; of commands that were disturbed, the last one if they finished nevertheless.
GOOD = ("used", "refused", "old kept", "some new", "all new", "finished")
BAD = ("exception", "message", "result", "memory", "crash", "hang")
LONGEST_MESSAGE = 1000
# Control characters, halves of surrogate pairs (which cannot be printed), and separators of lines and paragraphs.
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class Outcome:
    """One of GOOD or BAD, what there is to say about it, and the most memory in MB that the worker has held.

    where: the line of Hedgerow that a failure came from: failures of one place are one defect
    """

    what: str
    about: str = ""
    memory: int = 0
    where: str = ""

    @property
    def is_good(self):
        return self.what in GOOD

    @property
    def defect(self):
        """The same for failures that are probably the same."""
        return self.what, self.where or self.about

    def to_dict(self):
        return asdict(self)


class Failure(Exception):
    """Raised where a case ends as none may; `what` is one of BAD."""

    def __init__(self, what, about, where=""):
        super().__init__(about)
        self.what, self.where = what, where


def require(holds, about, where=""):
    """Raise Failure unless a result is what it must be."""
    if not holds:
        raise Failure("result", about, where)


def check_message(error):
    """Raise Failure unless the refusal is one printable line of bounded length that does not hide a want of memory."""
    check_text(str(error), origin(error))
    if is_want_of_memory(error):
        raise Failure("memory", str(error)[:300], origin(_first(error)))


def check_text(text, where):
    """Raise Failure unless a text is one printable line of bounded length."""
    strange = sorted({unicodedata.category(letter) for letter in text} & set(UNPRINTABLE))
    if not text or strange or len(text) > LONGEST_MESSAGE or "Traceback" in text:
        raise Failure("message", f"{len(text)} characters, of kinds {strange}: {text[:300]!r}", where)


def attempted(*steps):
    """The results of some ways to read a file, None for each that refuses; raises the last refusal if all do."""
    result, refusal = [], None
    for step in steps:
        try:
            result.append(step())
        except HedgerowError as error:
            check_message(error)
            result.append(None)
            refusal = error
    if refusal is not None and all(one is None for one in result):
        raise refusal
    return result


def is_want_of_memory(error):
    """Whether an exception, or one that it came from, says that memory ran out."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _first(error):
    """The exception that the others came from."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return error


def origin(error):
    """The last line of Hedgerow's own that an exception came through, "" if there is none."""
    trace, result = error.__traceback__, ""
    while trace is not None:
        result = own_line(trace.tb_frame.f_code.co_filename, trace.tb_lineno) or result
        trace = trace.tb_next
    return result


def own_line(path, line):
    """A place in Hedgerow, "paint/journal.py:50"; "" for a line of another program or of the tests."""
    path = Path(path)
    is_ours = "hedgerow" in path.parts and "tests" not in path.parts
    return f"{path.parent.name}/{path.name}:{line}" if is_ours else ""
