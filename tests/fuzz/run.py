"""Makes hostile files and uses them, and disturbs commands, until it is stopped; says how the cases ended.

The cases in tests/fuzz/corpus/, each of which once broke something, come first. Of what fails, the first case of each
defect is kept, with the command that does it again; a folder that was kept can be moved into the corpus.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the folder of tests is where its packages are found
    sys.path[0] = str(Path(__file__).parents[1])

from fuzz.kinds import OF_FILES, is_possible
from fuzz.runner import DISTURBED, Runner

KINDS = (*filter(is_possible, OF_FILES), *DISTURBED)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="files to make, or what happens to commands; all by default"
    )
    parser.add_argument("--seed", type=int, help="the same seed makes the same cases; by default a new one")
    parser.add_argument("--case", type=int, help="only this case")
    parser.add_argument("--kept", type=Path, help="only the case that was kept in this folder; give its --kind")
    parser.add_argument("--cases", type=int, help="stop after so many cases of each kind")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--processes", type=int, default=1, help="kinds whose cases run at the same time; 1 by default")
    parser.add_argument("--keep", default="build/fuzz", help="folder for the files that fail")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    kinds = options.kind or list(KINDS)
    print(f"seed {seed}", flush=True)
    with Runner(seed, kinds, options.keep, say=lambda text: print(text, flush=True)) as runner:
        try:
            if options.kept is not None:
                print(f"{kinds[0]}: {runner.run_kept(kinds[0], options.kept)}")
            elif options.case is not None:
                for kind in kinds:
                    print(f"{kind} {options.case}: {runner.run(kind, options.case)}")
            else:
                run_all(runner, options.cases, options.minutes, options.processes)
        except KeyboardInterrupt:
            print()
        for kind, tally in runner.tallies.items():
            print(f"{kind}: {tally}")
        return int(any(tally.failures for tally in runner.tallies.values()))


def run_all(runner, cases, minutes, processes=1):
    """The corpus, then cases of all kinds, each kind for the same time, until there were so many of each or the time is
    over. Of each kind, one case runs at a time."""
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    for kind in runner.kinds:
        runner.run_corpus(kind)
    turns = Turns(runner, cases, end)
    with ThreadPoolExecutor(processes) as pool:
        others = [pool.submit(turns.take) for _ in range(processes - 1)]
        try:
            turns.take()
        finally:
            turns.end = 0.0
    for other in others:
        other.result()


class Turns:
    """Which kind's turn it is. Several threads may take turns: each waits for a process that runs a case."""

    def __init__(self, runner, cases, end):
        self.runner, self.cases, self.end = runner, cases, end
        self.started, self.busy, self.changed = Counter(), set(), threading.Condition()

    def take(self):
        """Run cases until none is left or the time is over."""
        while (kind := self._next()) is not None:
            try:
                self.runner.run(kind, self.started[kind] - 1)
            finally:
                with self.changed:
                    self.busy.discard(_source(kind))
                    self.changed.notify_all()

    def _next(self):
        """The kind that had the least time so far, of those that no other thread runs; None: there is no more to do."""
        with self.changed:
            while time.monotonic() < self.end:
                left = [kind for kind in self.runner.kinds if self.cases is None or self.started[kind] < self.cases]
                if not left:
                    return None
                if free := [kind for kind in left if _source(kind) not in self.busy]:
                    kind = min(free, key=lambda kind: self.runner.tallies[kind].seconds)
                    self.started[kind] += 1
                    self.busy.add(_source(kind))
                    return kind
                self.changed.wait(1)
        return None


def _source(kind):
    """What runs the cases of a kind: a process of its own, or for all disturbed commands the same."""
    return "disturbed" if kind in DISTURBED else kind


if __name__ == "__main__":
    sys.exit(main())
