"""How a case may end: with a result that holds, or with one sentence. Everything else is a failure."""

import unicodedata
from dataclasses import asdict, dataclass

# Of files; of commands that were disturbed, the last one if they finished nevertheless.
GOOD = ("used", "refused", "old kept", "some new", "all new", "finished")
BAD = ("exception", "message", "result", "memory", "crash", "hang")
LONGEST_MESSAGE = 600
# Control characters, halves of surrogate pairs (which cannot be printed), and separators of lines and paragraphs.
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class Outcome:
    """One of GOOD or BAD, what there is to say about it, and the most memory in MB that the worker has held."""

    what: str
    about: str = ""
    memory: int = 0

    @property
    def is_good(self):
        return self.what in GOOD

    def to_dict(self):
        return asdict(self)


class Failure(Exception):
    """Raised where a case ends as none may; `what` is one of BAD."""

    def __init__(self, what, about):
        super().__init__(about)
        self.what = what


def require(holds, about):
    """Raise Failure unless a result is what it must be."""
    if not holds:
        raise Failure("result", about)


def check_message(error):
    """Raise Failure unless the refusal is one printable line of moderate length that does not hide a want of memory."""
    text = str(error)
    strange = sorted({unicodedata.category(letter) for letter in text} & set(UNPRINTABLE))
    if not text or strange or len(text) > LONGEST_MESSAGE or "Traceback" in text:
        raise Failure("message", f"{len(text)} characters, of kinds {strange}: {text[:300]!r}")
    if is_want_of_memory(error):
        raise Failure("memory", text[:300])


def is_want_of_memory(error):
    """Whether an exception, or one that it came from, says that memory ran out."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False
