"""Runs cases in worker processes and counts how they end; one that crashes or hangs costs a process, not the run."""

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.outcomes import GOOD, Outcome, own_line
from fuzz.special import can_unpack, pack

TESTS = Path(__file__).parents[1]
CORPUS = Path(__file__).with_name("corpus")  # a folder for each kind, and in it one for each case
HANG = 10  # seconds that no case needs
START = 300  # kernels may have to be compiled first
DISTURBED = ("kills", "full")
IN_MEMORY = 2**31  # bytes free, for the cases of all kinds
PER_WORKER = 2000  # cases; then a fresh process, so that one case cannot disturb all that follow
_FRAME = re.compile(r'File "(.+)", line (\d+) in ')


def _fast_folder():
    """A folder in memory, where small files cost least; None, the usual place, where there is no such folder."""
    in_memory = Path("/dev/shm")
    is_fit = in_memory.is_dir() and os.access(in_memory, os.W_OK) and shutil.disk_usage(in_memory).free > IN_MEMORY
    return in_memory if is_fit else None


@dataclass
class Tally:
    """How the cases of one kind ended.

    counts: outcome -> number of cases
    failures: one line for each defect, with what is needed to see it again
    seconds, slowest: of all cases together, and of the longest
    memory: the most that the worker held beside what it started with, in MB
    """

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0
    defects: set = field(default_factory=set)

    def count(self, outcome, seconds, memory_before):
        self.counts[outcome.what] += 1
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)
        self.memory = max(self.memory, outcome.memory - memory_before)

    def is_new(self, outcome):
        """Whether a failure is the first of its kind; it is noted."""
        is_new = outcome.defect not in self.defects
        self.defects.add(outcome.defect)
        return is_new

    def __str__(self):
        counts = ", ".join(f"{n:,} {what}" for what, n in sorted(self.counts.items(), key=lambda item: -item[1]))
        n_failed = sum(n for what, n in self.counts.items() if what not in GOOD)
        failed = f"{n_failed:,} failures" + f" of {len(self.defects)} defects" * (n_failed > 0)
        total = sum(self.counts.values())
        return f"{total:,} cases: {counts}; {failed}; slowest {self.slowest:.1f} s, {self.memory} MB"


class Worker:
    """A process that runs cases of a kind, in a folder of its own."""

    def __init__(self, folder, kind, hang=HANG):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.kind, self.hang, self.n_cases = folder, kind, hang, 0
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TESTS)])),
            "HEDGEROW_MAX_MEGAPIXELS": "4",
            "HEDGEROW_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "XDG_STATE_HOME": str(folder / "state"),  # what is written here is not noted in anybody's home
            "LOCALAPPDATA": str(folder / "state"),
        }
        self.log = (folder / "log.txt").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", str(folder), kind, str(hang)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment,
        )  # fmt: skip
        self.answers = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.before = self._answer(START)
        if self.before.what != "ready":
            raise RuntimeError(f"the worker did not start: {self.before.about}")

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(b"")

    def _answer(self, seconds):
        line = self._line(seconds)
        if line is None:
            self.process.kill()
            self.process.wait()
            where = self._last_line()
            return Outcome("hang", f"no answer within {seconds} s ({where or 'elsewhere'})", where=where)
        if line:
            return Outcome(**json.loads(line))
        code = self.process.wait()
        where = f"{self._last_line()} ended with {code}"
        return Outcome("crash", f"the process ended with {code}: {self._logged()[-1000:]}", where=where)

    def _line(self, seconds):
        """What the worker says; None: nothing for so long, beside the time in which other processes kept it waiting."""
        end, waited = time.monotonic() + seconds, self.seconds_waiting()
        while (left := end + self.seconds_waiting() - waited - time.monotonic()) > 0:
            with suppress(queue.Empty):
                return self.answers.get(timeout=left)
        return None

    def seconds_waiting(self):
        """How long the process could have run, but other processes did; 0 where the system does not say."""
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def _logged(self):
        return (self.folder / "log.txt").read_text(errors="replace")

    def _last_line(self):
        """The innermost line of Hedgerow in the traceback that the log ends with."""
        last = self._logged().rpartition("(most recent call first)")[2]
        return next(filter(None, (own_line(*found) for found in _FRAME.findall(last))), "")

    def run(self, **case):
        """Outcome of a case: `seed` and `number`, or `kept`."""
        self.n_cases += 1
        with suppress(OSError):  # it is dead, which the answer says
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
            self.process.stdin.flush()
        return self._answer(self.hang)

    @property
    def is_alive(self):
        return self.process.poll() is None

    def stop(self):
        with suppress(OSError):  # it is dead, and there was something left to tell it
            self.process.stdin.close()
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Runner:
    """Runs cases, counts them by kind, and keeps the files of those that fail in a folder.

    kinds: of files, see `fuzz.kinds`; of disturbed commands, "kills" and "full"
    hang: seconds after which a file counts as making its reader hang
    """

    def __init__(self, seed, kinds, keep, say=print, hang=HANG):
        self.seed, self.kinds, self.keep, self.say, self.hang = seed, kinds, Path(keep), say, hang
        self.tallies = {kind: Tally() for kind in kinds}
        self.workers, self.disturbed = {}, None
        self.place = tempfile.TemporaryDirectory(prefix="hedgerow-fuzz-", dir=_fast_folder())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.workers.values(), self.disturbed):
            if process is not None:
                process.stop()
        self.place.cleanup()

    def run(self, kind, number):
        """Outcome of a case, counted."""
        if kind in DISTURBED:
            source = self._disturbed()
            run, before = lambda: source.run(kind, self.seed, number), 0
        else:
            source = self._worker(kind)
            run, before = lambda: source.run(seed=self.seed, number=number), source.before.memory
        again = f"--seed {self.seed} --case {number}"
        return self._counted(kind, source, run, before, f"{kind}-{self.seed}-{number}", again)

    def run_kept(self, kind, folder):
        """Outcome of a case that was kept in a folder, counted."""
        source = self._worker(kind)
        run, name = lambda: source.run(kept=str(folder)), f"{kind}-{folder.name}"
        return self._counted(kind, source, run, source.before.memory, name, f"--kept {folder}")

    def run_corpus(self, kind):
        """All cases that once broke something."""
        for folder in filter(can_unpack, sorted((CORPUS / kind).glob("*"))):
            self.run_kept(kind, folder)

    def _counted(self, kind, source, run, memory_before, name, again):
        begin = time.monotonic()
        outcome = run()
        tally = self.tallies[kind]
        tally.count(outcome, time.monotonic() - begin, memory_before)
        if not outcome.is_good and tally.is_new(outcome):
            left = source.last.folder if kind in DISTURBED else source.folder / "case"
            tally.failures.append(self._kept(kind, outcome, left, name, again))
            self.say(tally.failures[-1])
        return outcome

    def _worker(self, kind):
        worker = self.workers.get(kind)
        if worker is not None and (not worker.is_alive or worker.n_cases >= PER_WORKER):
            self.workers.pop(kind).stop()
        if kind not in self.workers:
            self.workers[kind] = Worker(Path(self.place.name) / kind, kind, self.hang)
        return self.workers[kind]

    def _disturbed(self):
        from fuzz.disturbed import Disturbed  # takes seconds, which the kinds of files need not wait for

        if self.disturbed is None:
            self.disturbed = Disturbed(Path(self.place.name) / "disturbed")
        return self.disturbed

    def _kept(self, kind, outcome, left, name, again):
        """Keep the files of a case -> what to say about it."""
        kept = self.keep / name
        shutil.rmtree(kept, ignore_errors=True)
        pack(left, kept)
        note = left.with_suffix(".txt")
        done = note.read_text(encoding="utf-8") if note.exists() else ""
        about = outcome.about if done in outcome.about else f"{done}: {outcome.about}"
        again = f"python tests/fuzz/run.py --kind {kind} {again}"
        return f"{outcome.what}: {about}\n  again: {again}\n  kept in: {kept}"
