"""What no case may do, done on purpose: the runner must notice each."""

import os
import sys
import time

from fuzz.outcomes import require
from hedgerow.errors import InputError


def _crash():
    os.abort()


def _hang():
    time.sleep(10_000)


def _take_memory():
    bytearray(4 * 2**30)


def _refuse_for_memory():
    try:
        _take_memory()
    except MemoryError as error:
        raise InputError("the file is damaged; copy it again.") from error


def _raise():
    return {}["absent"]


class Careless(InputError):
    """Says everything that it is told, however long, and whatever it does to a terminal."""

    def __str__(self):
        return self.args[0]


def _long_refusal():
    raise Careless("x" * 2000)


def _coloured_refusal():
    raise Careless("a file \x1b[31mof that name")


def _wrong_result():
    require(False, "it is wrong")


def _proper_refusal():
    raise InputError("the file is damaged; copy it again.")


CASES = (
    *((_proper_refusal, "refused"), (print, "used"), (_crash, "crash"), (_hang, "hang"), (_raise, "exception")),
    *((_long_refusal, "message"), (_coloured_refusal, "message"), (_wrong_result, "result")),
    *((_take_memory, "memory"), (_refuse_for_memory, "memory")) * (sys.platform == "linux"),  # limited only there
)


def chosen(rng):
    """Which of CASES a case is."""
    return int(rng.integers(len(CASES)))


class Broken:
    """Files that hold which of CASES to do."""

    name = "broken"

    def __init__(self, folder):
        pass

    def write(self, rng, folder):
        number, path = chosen(rng), folder / "broken.txt"
        path.write_text(str(number))
        return path, CASES[number][0].__name__

    def use(self, path):
        CASES[int(path.read_text())][0]()
