"""Shared by all benchmarks: measuring each contender in its own process, and printing the comparison.

Wall seconds are what a user waits, CPU seconds (of all threads and child processes) what the work costs; on a noisy
machine, compare CPU seconds. Peak memory is the largest resident memory.
"""

import gc
import importlib.util
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")

THREADS = 2
"""Threads or jobs for every contender, unless a table says otherwise."""
MEGABYTE = 1e6
DRAWN = Path(__file__).parent / "drawn"
"""Figures of the last run of any size; `run.py --write` copies them beside the tables."""
SMALL_WARNING = "Small sizes, to check that everything works; the promises are made for the full sizes."


class CheckFailed(Exception):
    """A contender's results are wrong, so its timings mean nothing and are not shown."""


@dataclass(frozen=True)
class Cost:
    """The cost of some work.

    wall, cpu: seconds, the least of all repeats
    added:     peak memory in megabytes, above what was resident when the work began
    peak:      peak memory in megabytes of the whole process with its libraries and data
    """

    wall: float
    cpu: float
    added: float
    peak: float


@dataclass(frozen=True)
class Outcome:
    """The costs of a contender, and its accuracy on samples that it was not trained on."""

    train: Cost
    predict: Cost
    accuracy: float


def measure(work: Callable[[], Result], repeats: int = 1) -> tuple[Cost, Result]:
    """Run `work` `repeats` times, where nothing else runs in the process; returns its cost and its last result."""
    walls, cpus, added, peaks = [], [], [], []
    for _ in range(repeats):
        result = None
        gc.collect()
        _forget_peak()
        resident, wall, cpu = _memory("VmRSS"), time.perf_counter(), _cpu_seconds()
        result = work()
        walls.append(time.perf_counter() - wall)
        cpus.append(_cpu_seconds() - cpu)
        peaks.append(_memory("VmHWM"))
        added.append(peaks[-1] - resident)
    return Cost(min(walls), min(cpus), max(added), max(peaks)), result  # type: ignore[return-value]


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _memory(field: str) -> float:
    """Resident megabytes, now (VmRSS) or at the peak (VmHWM); without /proc, both are the peak."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith(field))
    return int(kilobytes) * 1024 / MEGABYTE


def _forget_peak() -> None:
    """Reset the peak to what is resident now; if the system refuses, the old peak remains."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a module's function in a new interpreter, so that no contender affects another."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def require(holds: bool, complaint: str) -> None:
    if not holds:
        raise CheckFailed(complaint)


def exponent(sizes: Sequence[float], costs: Sequence[float], least: float = 0.0) -> float:
    """The exponent e for which size to the power e fits the costs best; 1 means proportional.

    Costs up to `least` are noise and ignored; NaN if fewer than two remain.
    """
    counting = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if cost > least]
    if len(counting) < 2:
        return math.nan
    return float(np.polyfit(*np.log(counting).T, 1)[0])


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded to be readable on a terminal; the first column is left-aligned."""
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([cells[0].ljust(widths[0]), *rest]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(headers), rule, *map(line, rows)])


COST_HEADERS = ("wall s", "CPU s", "added MB", "peak MB")


def cost_cells(cost: Cost) -> list[str]:
    return [seconds(cost.wall), seconds(cost.cpu), f"{cost.added:.0f}", f"{cost.peak:.0f}"]


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def comparison(
    costs: dict[str, Cost | None], peer: str, notes: dict[str, str] | None = None, note_header: str = ""
) -> str:
    """A table that compares contenders with the peer; None stands for one that is not installed."""
    reference = costs.get(peer)
    headers = ["contender", *COST_HEADERS, f"CPU / {peer}"]
    rows = []
    for name, cost in costs.items():
        if cost is None:
            rows.append([name, *["not installed"], *["-"] * 4])
        else:
            ratio = f"{cost.cpu / reference.cpu:.3f}" if reference else "-"
            rows.append([name, *cost_cells(cost), ratio])
        if notes is not None:
            rows[-1].append(notes.get(name, "-"))
    if notes is not None:
        headers.append(note_header)
    return table(headers, rows)


def verdict(task: str, ours: float, peer: float | None, limit: float, aim: float | None = None) -> str:
    """One sentence that compares our fraction of the peer's CPU seconds with the fraction that we promise."""
    promise = "promised no more than the peer" if limit == 1 else f"promised at most 1/{1 / limit:g}"
    promise += f", aim 1/{1 / aim:g}" if aim else ""
    if peer is None:
        return f"- {task}: nothing to compare with, the peer is not installed ({promise})."
    kept = "kept" if ours <= limit * peer else "NOT KEPT"
    return f"- {task}: 1/{peer / ours:.2f} of the peer's CPU seconds; {promise}: {kept}."
