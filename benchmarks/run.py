"""Runs the benchmarks one after another, each with its peers, and prints the tables: `make bench`.

Timings of wrong results are discarded. `--write` saves a whole run to RESULTS.md, and `--only NAME --write` one section
of it, with its date, machine and command.
"""

import argparse
import datetime
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import bench_ahead
import bench_convnets
import bench_day
import bench_encoders
import bench_export
import bench_filters
import bench_forest
import bench_gpu
import bench_growth
import bench_kills
import bench_large
import bench_much
import bench_net
import bench_objects
import bench_paint
import bench_pixels
import bench_set
import bench_strokes
import bench_tables
import bench_volume_filters
import bench_where_next
from hedgerow import __version__
from hedgerow.predict.devices import version
from measure import SMALL_WARNING, THREADS, CheckFailed

BENCHMARKS = {
    "forest": bench_forest,
    "filters": bench_filters,
    "volume-filters": bench_volume_filters,
    "pixels": bench_pixels,
    "strokes": bench_strokes,
    "objects": bench_objects,
    "where-next": bench_where_next,
    "encoders": bench_encoders,
    "export": bench_export,
    "growth": bench_growth,
    "set": bench_set,
    "network": bench_net,
    "gpu": bench_gpu,
    "convnets": bench_convnets,
    "tables": bench_tables,
    "ahead": bench_ahead,
    "day": bench_day,
    "paint": bench_paint,
    "large": bench_large,
    "kills": bench_kills,
    "much": bench_much,
}
RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = (
    "numpy",
    "numba",
    "scipy",
    "scikit-learn",
    "scikit-learn-intelex",
    "scikit-image",
    "opencv-python-headless",
    "onnx",
    "onnxruntime",
    "torch",
)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def surroundings(command: str) -> str:
    """The date, machine and versions of this run, without which its numbers mean little."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [
        f"- command: `{command}`",
        f"- date: {datetime.date.today().isoformat()}",
        f"- processor: {processor()}, {cores} cores in use, {THREADS} threads to each contender",
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"- load average at the start: {os.getloadavg()[0]:.2f} (a quiet machine shows less than 0.5)")
    versions = ", ".join(f"{package} {version(package) or 'not installed'}" for package in PACKAGES)
    python = platform.python_version()
    return "\n".join([*lines, f"- versions: Python {python}, hedgerow {__version__}, {versions}"])


READING = """\
How fast is Hedgerow, and how much memory does it need, compared with other software? Each time is the lowest of several
runs of a contender; each contender has its own process. CPU seconds count all threads, and ratios are those of CPU
seconds. "Added MB" is the peak memory above what was resident when the work began; "peak MB" is that of the whole
process with its libraries and data. "Promised" is the target that the benchmark checks, and "kept" means that it was
met. A section that names its own command was run with it; all others were run with the command above."""


def section(title: str, run: Callable[[], str], about: str = "") -> tuple[str, bool]:
    """A benchmark's section of the page, which begins with `about`, and whether its checks passed."""
    start = time.perf_counter()
    try:
        text, passed = run(), True
    except CheckFailed as failure:
        text, passed = f"**Refused to time:** {failure}", False
    parts = [f"## {title}", about, text, f"({time.perf_counter() - start:.0f} seconds in all.)"]
    return "\n\n".join(part for part in parts if part) + "\n", passed


def rewritten(page: str, new: Mapping[str, str]) -> str:
    """The page with its sections replaced by new ones, by title; sections of removed benchmarks are left out."""
    head, *old = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    sections = {text.splitlines()[0].removeprefix("## "): text for text in old} | new
    known = [sections[bench.TITLE] for bench in BENCHMARKS.values() if bench.TITLE in sections]
    return "\n".join(part.strip() + "\n" for part in (head, *known))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run only this benchmark; repeatable")
    parser.add_argument("--small", action="store_true", help="use small sizes, to check that everything works")
    kept = f"{RESULTS.parent.name}/{RESULTS.name}"
    parser.add_argument("--write", action="store_true", help=f"also save the sections in {kept}, and their figures")
    options = parser.parse_args()
    if options.write and options.small:
        parser.error("--write needs full sizes: leave out --small.")

    about = surroundings(" ".join(["python", "benchmarks/run.py", *sys.argv[1:]]))
    head = "\n\n".join(["# Benchmarks", about, READING, *[SMALL_WARNING] * options.small])
    print(head + "\n", flush=True)
    jobs = {name: bench for name, bench in BENCHMARKS.items() if not options.only or name in options.only}
    own_about = about if options.only and options.write else ""
    sections, all_passed = {}, True
    for bench in jobs.values():
        run = partial(bench.run, options.small)
        sections[bench.TITLE], passed = section(bench.TITLE, run, own_about)
        print(sections[bench.TITLE], flush=True)
        all_passed &= passed
    if not all_passed:
        sys.exit("a correctness check failed, so nothing was written.")
    if options.write:
        page = RESULTS.read_text(encoding="utf-8") if options.only else head
        RESULTS.write_text(rewritten(page, sections), encoding="utf-8")
        for bench in jobs.values():
            if hasattr(bench, "FIGURE") and bench.FIGURE.exists():
                shutil.copyfile(bench.FIGURE, RESULTS.parent / bench.FIGURE.name)


if __name__ == "__main__":
    main()
