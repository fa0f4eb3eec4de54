"""Makes hostile files and uses them, and disturbs commands, until it is stopped; says how the cases ended.

The cases in tests/fuzz/corpus/, each of which once broke something, come first. Of what fails, the first case of each
defect is kept, with the command that does it again; a folder that was kept can be moved into the corpus.
"""

import argparse
import sys
import time
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
                run_all(runner, options.cases, options.minutes)
        except KeyboardInterrupt:
            print()
        for kind, tally in runner.tallies.items():
            print(f"{kind}: {tally}")
        return int(any(tally.failures for tally in runner.tallies.values()))


def run_all(runner, cases, minutes):
    """The corpus, then cases of all kinds, each kind for the same time, until there were so many of each or the time is
    over."""
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    for kind in runner.kinds:
        runner.run_corpus(kind)
    numbers = dict.fromkeys(runner.kinds, 0)
    while time.monotonic() < end:
        going_on = [kind for kind in runner.kinds if cases is None or numbers[kind] < cases]
        if not going_on:
            return
        kind = min(going_on, key=lambda kind: runner.tallies[kind].seconds)
        runner.run(kind, numbers[kind])
        numbers[kind] += 1


if __name__ == "__main__":
    sys.exit(main())
