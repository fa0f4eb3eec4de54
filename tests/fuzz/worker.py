"""A process that runs cases: everything is imported once, memory is limited, and a crash costs only the process.

It reads lines of "kind seed number" and answers each with a line of JSON. Run by `fuzz.runner`, never by hand.
"""

import contextlib
import faulthandler
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np

import hedgerow as hr
from fuzz.broken import Broken
from fuzz.images import Images
from fuzz.models import Models
from fuzz.outcomes import Failure, Outcome, check_message, is_want_of_memory
from fuzz.settings import Settings

KINDS = (Models, Images, Settings, Broken)
MEMORY = 2**30  # more than this, beside what the process needs anyway, is too much for files of some kB


def rng_of(kind, seed, number):
    """The random numbers of a case: the same for the same case, whatever ran before it."""
    return np.random.default_rng([seed, [one.name for one in KINDS].index(kind), number])


def run_case(kind, seed, number, folder):
    """Make the file of a case in the folder and use it -> Outcome."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    note = folder.with_suffix(".txt")  # for whoever looks at the file after a crash
    note.write_text("the file could not be made")
    path, done = kind.write(rng_of(kind.name, seed, number), folder)
    note.write_text(done, encoding="utf-8", errors="backslashreplace")
    try:
        kind.use(path)
        return Outcome("used", done)
    except Failure as failure:
        return Outcome(failure.what, f"{done}: {failure}")
    except hr.HedgerowError as error:
        try:
            check_message(error)
        except Failure as failure:
            return Outcome(failure.what, f"{done}: {failure}")
        return Outcome("refused", done)
    except Exception as error:
        what = "memory" if is_want_of_memory(error) else "exception"
        return Outcome(what, f"{done}: {type(error).__name__}: {error} ({_origin(error)})")


def _origin(error):
    """The last line of Hedgerow's own that the exception came through."""
    trace, found = error.__traceback__, "elsewhere"
    while trace is not None:
        name = Path(trace.tb_frame.f_code.co_filename)
        if "hedgerow" in name.parts and "tests" not in name.parts:
            found = f"{name.parent.name}/{name.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def limit_memory():
    """From now on, this process may take MEMORY more bytes than it has."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # other systems have no such limit
        import resource

        lines = Path("/proc/self/status").read_text().splitlines()
        has = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (has + MEMORY, has + MEMORY))


def held():
    """The most memory, in MB, that this process has held so far; 0 where that is not known."""
    with contextlib.suppress(ImportError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
    return 0


def main():
    folder, *names = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    faulthandler.enable()
    warnings.simplefilter("ignore")
    hr.set_threads(1)
    kinds = {kind.name: kind(Path(folder)) for kind in KINDS if kind.name in names}
    limit_memory()
    print(json.dumps(Outcome("ready", memory=held()).to_dict()), file=answers, flush=True)
    for line in sys.stdin:
        name, seed, number = line.split()
        outcome = run_case(kinds[name], int(seed), int(number), Path(folder) / "case")
        answer = outcome.to_dict() | {"memory": held()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
