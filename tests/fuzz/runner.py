"""Runs cases in a worker process and counts how they end; one that crashes or hangs costs a process, not the run."""

import json
import os
import queue
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

from fuzz.outcomes import Outcome

TESTS = Path(__file__).parents[1]
HANG = 60  # seconds that no case needs, even on a busy machine
START = 300  # kernels may have to be compiled first
DISTURBED = ("kills", "full")
PER_WORKER = 500  # cases; then a fresh process, so that one case cannot disturb all that follow


@dataclass
class Tally:
    """How the cases of one kind ended.

    counts: outcome -> number of cases
    failures: one line each, with what is needed to see it again
    seconds, slowest: of all cases together, and of the longest
    memory: the most that the worker held beside what it started with, in MB
    """

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0

    def count(self, outcome, seconds, memory_before):
        self.counts[outcome.what] += 1
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)
        self.memory = max(self.memory, outcome.memory - memory_before)

    def __str__(self):
        counts = ", ".join(f"{n:,} {what}" for what, n in sorted(self.counts.items(), key=lambda item: -item[1]))
        held = f", {self.memory} MB" if self.memory else ""
        return f"{sum(self.counts.values()):,} cases: {counts} (longest {self.slowest:.1f} s{held})"


class Worker:
    """A process that runs cases of some kinds, in a folder of its own."""

    def __init__(self, folder, kinds, hang=HANG):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.hang, self.n_cases = folder, hang, 0
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TESTS)])),
            "HEDGEROW_MAX_MEGAPIXELS": "4",
            "HEDGEROW_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.log = (folder / "log.txt").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", str(folder), *kinds],
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
        try:
            line = self.answers.get(timeout=seconds)
        except queue.Empty:
            self.process.kill()
            self.process.wait()
            return Outcome("hang", f"no answer within {seconds} s")
        if line:
            return Outcome(**json.loads(line))
        code = self.process.wait()
        self.log.flush()
        last = (self.folder / "log.txt").read_text(errors="replace")[-1000:]
        return Outcome("crash", f"the process ended with {code}: {last}")

    def run(self, kind, seed, number):
        """Outcome of a case."""
        self.n_cases += 1
        with suppress(OSError):  # it is dead, which the answer says
            self.process.stdin.write(f"{kind} {seed} {number}\n".encode())
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

    kinds: of files, "models", "images" and "settings"; of disturbed commands, "kills" and "full"
    hang: seconds after which a file counts as making its reader hang
    """

    def __init__(self, seed, kinds, keep, say=print, hang=HANG):
        self.seed, self.kinds, self.keep, self.say, self.hang = seed, kinds, Path(keep), say, hang
        self.tallies = {kind: Tally() for kind in kinds}
        self.worker = self.disturbed = None
        self.place = tempfile.TemporaryDirectory(prefix="hedgerow-fuzz-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.worker, self.disturbed):
            if process is not None:
                process.stop()
        self.place.cleanup()

    def run(self, kind, number):
        """Outcome of a case, counted."""
        of_file = kind not in DISTURBED
        source = self._worker() if of_file else self._disturbed()
        begin = time.monotonic()
        outcome = source.run(kind, self.seed, number)
        tally = self.tallies[kind]
        tally.count(outcome, time.monotonic() - begin, source.before.memory if of_file else 0)
        if not outcome.is_good:
            left = source.folder / "case" if of_file else source.last.folder
            tally.failures.append(self._kept(kind, number, outcome, left))
            self.say(tally.failures[-1])
        return outcome

    def _worker(self):
        if self.worker is not None and (not self.worker.is_alive or self.worker.n_cases >= PER_WORKER):
            self.worker.stop()
            self.worker = None
        if self.worker is None:
            of_files = [kind for kind in self.kinds if kind not in DISTURBED]
            self.worker = Worker(Path(self.place.name) / "worker", of_files, self.hang)
        return self.worker

    def _disturbed(self):
        from fuzz.disturbed import Disturbed  # takes seconds, which the kinds of files need not wait for

        if self.disturbed is None:
            self.disturbed = Disturbed(Path(self.place.name) / "disturbed")
        return self.disturbed

    def _kept(self, kind, number, outcome, left):
        """Keep the files of a case -> what to say about it."""
        kept = self.keep / f"{kind}-{self.seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(left, kept)
        note = left.with_suffix(".txt")
        done = note.read_text(encoding="utf-8") if note.exists() else ""
        about = outcome.about if done in outcome.about else f"{done}: {outcome.about}"
        again = f"python tests/fuzz/run.py --kind {kind} --seed {self.seed} --case {number}"
        return f"{outcome.what}: {about}\n  again: {again}\n  kept in: {kept}"
