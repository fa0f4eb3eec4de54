"""Runs the benchmarks one after another, each beside its peers, and prints the tables: `make bench`.

Nothing is timed, or its timings are thrown away, where the results are not what they should be.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bench_filters
import bench_forest
import bench_net
import bench_pixels
import bench_set
from measure import SMALL_WARNING, THREADS, CheckFailed

BENCHMARKS = {
    "forest": bench_forest,
    "filters": bench_filters,
    "pixels": bench_pixels,
    "set": bench_set,
    "network": bench_net,
}
RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = (
    "hedgerow",
    "numpy",
    "numba",
    "scipy",
    "scikit-learn",
    "scikit-learn-intelex",
    "scikit-image",
    "opencv-python-headless",
    "torch",
)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def surroundings(command: str) -> str:
    """Where and how this run was made: without that its numbers mean little."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [
        f"- command: `{command}`",
        f"- date: {datetime.date.today().isoformat()}",
        f"- processor: {processor()}, {cores} cores in use, {THREADS} threads to each contender",
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"- load average at the start: {os.getloadavg()[0]:.2f} (a quiet machine shows less than 0.5)")
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return "\n".join([*lines, f"- versions: Python {platform.python_version()}, {versions}"])


READING = """\
The least of several runs of each contender, each contender in a process of its own. CPU seconds count all
threads; the ratio is of CPU seconds. "added MB" is peak memory above what was resident when the work began;
"peak MB" is the whole process with its libraries and data."""


def section(title: str, run: Callable[[], str]) -> tuple[str, bool]:
    """A benchmark's part of the page, and whether its checks passed."""
    start = time.perf_counter()
    try:
        text, passed = run(), True
    except CheckFailed as failure:
        text, passed = f"**Refused to time:** {failure}", False
    return f"## {title}\n\n{text}\n\n({time.perf_counter() - start:.0f} seconds in all.)\n", passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="this benchmark; may be repeated")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--full", action="store_true", help="also the zebrafish job at full size")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.parent.name}/{RESULTS.name}")
    options = parser.parse_args()
    if options.write and (options.small or options.only):
        parser.error("--write needs a whole run at full sizes: leave out --small and --only.")

    command = " ".join(["python", "benchmarks/run.py", *sys.argv[1:]])
    parts = ["# Benchmarks\n", surroundings(command) + "\n", READING + "\n"]
    parts += [SMALL_WARNING + "\n"] if options.small else []
    print("\n".join(parts), flush=True)
    jobs = {name: bench for name, bench in BENCHMARKS.items() if not options.only or name in options.only}
    runs = [(bench.TITLE, lambda bench=bench: bench.run(options.small)) for bench in jobs.values()]
    if options.full:
        runs.append(("The zebrafish set", bench_set.run_full))
    all_passed = True
    for title, run in runs:
        text, passed = section(title, run)
        print(text, flush=True)
        parts.append(text)
        all_passed &= passed
    if not all_passed:
        sys.exit("a correctness check failed, so nothing was written.")
    if options.write:
        RESULTS.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
