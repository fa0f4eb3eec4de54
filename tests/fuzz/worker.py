"""A process that runs cases: everything is imported once, memory is limited, and a crash costs only the process.

It reads lines of JSON, {"kind", "seed", "number"} or {"kind", "kept"}, and answers each with a line of JSON. Run by
`fuzz.runner`, never by hand.
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
from fuzz import kinds
from fuzz.outcomes import Failure, Outcome, check_message, is_want_of_memory, origin
from fuzz.special import unpack

MEMORY = 2**30  # more than this, beside what the process needs anyway, is too much for files of some kB


def rng_of(kind, seed, number):
    """The random numbers of a case: the same for the same case, whatever ran before it."""
    return np.random.default_rng([seed, list(kinds.MODULES).index(kind), number])


def run_case(kind, seed, number, folder):
    """Make the file of a case in the folder and use it -> Outcome."""
    _empty(folder)
    path, done = kind.write(rng_of(kind.name, seed, number), folder)
    return _outcome(kind, path, done)


def run_kept(kind, kept, folder):
    """Use the file of a case that was packed into a folder -> Outcome."""
    _empty(folder)
    unpack(Path(kept), folder)
    return _outcome(kind, kinds.case_of(folder), Path(kept).name)


def _empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.with_suffix(".txt").write_text("the file could not be made")


def _outcome(kind, path, done):
    # For whoever looks at the file after a crash.
    path.parent.with_suffix(".txt").write_text(done, encoding="utf-8", errors="backslashreplace")
    try:
        kind.use(path)
        return Outcome("used", done)
    except Failure as failure:
        return Outcome(failure.what, f"{done}: {failure}", where=failure.where)
    except hr.HedgerowError as error:
        try:
            check_message(error)
        except Failure as failure:
            return Outcome(failure.what, f"{done}: {failure}", where=failure.where)
        return Outcome("refused", done)
    except Exception as error:
        what, where = "memory" if is_want_of_memory(error) else "exception", origin(error)
        about = f"{done}: {type(error).__name__}: {str(error)[:1000]} ({where or 'elsewhere'})"
        return Outcome(what, about, where=where and f"{type(error).__name__} {where}")


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
    folder, name, hang = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    faulthandler.enable()
    warnings.simplefilter("ignore")
    os.fsync = lambda file: None  # no case is worth a wait for the disk
    hr.set_threads(1)
    kind = kinds.make(name, Path(folder))
    limit_memory()
    print(json.dumps(Outcome("ready", memory=held()).to_dict()), file=answers, flush=True)
    case = Path(folder) / "case"
    for line in sys.stdin:
        asked = json.loads(line)
        faulthandler.dump_traceback_later(0.9 * float(hang), repeat=True)  # where it hangs, for the runner to see
        if "kept" in asked:
            outcome = run_kept(kind, asked["kept"], case)
        else:
            outcome = run_case(kind, asked["seed"], asked["number"], case)
        faulthandler.cancel_dump_traceback_later()
        answer = outcome.to_dict() | {"memory": held()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
