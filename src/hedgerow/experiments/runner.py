"""Runs an experiment part by part into a folder; what is there already is not run again.

The folder gets `results.json` (every number, seed, setting, version and timing), `tables.md`, figures, `report.html`,
and the models. A part's rows are written when it ends, and a refinement keeps a checkpoint, so an interrupted
experiment goes on where it stopped when it is started again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.checkpoints import fingerprint
from hedgerow.config import AugmentConfig
from hedgerow.errors import InputError
from hedgerow.experiments.data import DRAWN, TEST_SEED, TRAIN_SEED, ImageSet, halved, load_set, spread, with_copies
from hedgerow.experiments.outputs import write_outputs
from hedgerow.experiments.parts import PARTS, Bench, usable_parts
from hedgerow.experiments.protocols import PROTOCOLS, Protocol, Scale
from hedgerow.images import atomic_path, make_folder
from hedgerow.progress import Report, reporting
from hedgerow.report.words import versions
from hedgerow.threads import get_threads


def run_experiment(
    name: str,
    folder: str | Path,
    *,
    data: str | None = None,
    scale: str = "small",
    seeds: Sequence[int] = (0,),
    parts: Sequence[str] | None = None,
    device: str = "cpu",
    say: Callable[[str], None] = print,
    progress: Report | None = None,
) -> dict[str, Any]:
    """Run the parts (None: all that make sense) for every seed; the results, as in `results.json`.

    data:  "somites", "bodies", or a folder with images/, labels/, train.txt and test.txt; None: the experiment's own
    scale: "small" (minutes) or "full" (the paper's size)
    """
    protocol, size = _protocol(name, data, scale)
    folder = Path(folder)
    make_folder(folder)
    train, test = load_part(protocol, size, data, "train"), load_part(protocol, size, data, "test")
    known = usable_parts(protocol, len(train.images))
    chosen = known if parts is None else list(parts)
    for part in chosen:
        if part not in known:
            raise InputError(f"there is no part {part!r} here; choose from {', '.join(known)}.")
    settings = {**protocol.to_dict(), "scale": scale, "data": data or protocol.data, "sizes": _sizes(train, test)}
    mark = fingerprint(settings, *train.images, *train.labels, *test.images, *test.labels)
    _claim(folder, mark)
    for room in ("parts", "models"):
        make_folder(folder / room)
    say(f"{name}: {len(train.images)} images to learn from, {len(test.images)} to test on; {len(chosen)} parts")
    with reporting(progress) as report:
        for seed in seeds:
            bench = Bench(
                protocol,
                size,
                train,
                with_copies(train, AugmentConfig(protocol.copies), seed),
                test,
                seed,
                device,
                folder,
                report,
            )
            for part in chosen:
                _run_part(part, bench, say)
                _write_json(folder / "results.json", collected(folder, settings, seeds))
    results = collected(folder, settings, seeds)
    write_outputs(folder, results, test, progress)
    return results


def _protocol(name: str, data: str | None, scale: str) -> tuple[Protocol, Scale]:
    if name not in PROTOCOLS:
        raise InputError(f"there is no experiment {name!r}; choose from {', '.join(PROTOCOLS)}.")
    protocol = PROTOCOLS[name]
    if scale not in protocol.scales:
        raise InputError(f"there is no scale {scale!r}; choose from {', '.join(protocol.scales)}.")
    if data is None and protocol.data is None:
        raise InputError(f"{name} needs images: name a folder with images/, labels/, train.txt and test.txt (--data).")
    size = protocol.scales[scale]
    return protocol.scaled(size), size


def load_part(protocol: Protocol, size: Scale, data: str | None, part: str) -> ImageSet:
    """The images of one part, "train" or "test", at the experiment's scale."""
    n = size.n_train if part == "train" else size.n_test
    source = data or protocol.data
    assert source is not None
    if source in DRAWN:
        drawn = {} if size.size == (0, 0) else {"size": size.size}
        return ImageSet(*DRAWN[source](n_images=n or 16, seed=TRAIN_SEED if part == "train" else TEST_SEED, **drawn))
    found = spread(load_set(source, part), n)
    images, labels = found.images, found.labels
    times = size.shrink
    while times > 1:
        images = [halved(image, protocol.is_depth) for image in images]
        labels = [label[::2, ::2] for label in labels]
        times //= 2
    return ImageSet(images, labels)


def _run_part(part: str, bench: Bench, say: Callable[[str], None]) -> None:
    path = bench.folder / "parts" / f"{part}-{bench.seed}.json"
    if path.exists():
        say(f"{part}, seed {bench.seed}: done before")
        return
    start, cpu = time.perf_counter(), time.process_time()
    rows = PARTS[part](bench)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    written = {"part": part, "seed": bench.seed, "seconds": seconds, "cpu_seconds": cpu, "rows": rows}
    _write_json(path, {**written, "device": bench.device, "threads": get_threads()})
    measure = bench.protocol.measure
    found = ", ".join(f"{row['model']} {row.get(measure, row['mean_dice']):.3f}" for row in rows)
    say(f"{part}, seed {bench.seed}: {found} ({seconds:.0f} s)")


def collected(folder: Path, settings: dict[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """All that the folder's parts found, with what they were run with."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "parts").glob("*.json"))]
    files = [file for file in files if file["seed"] in seeds]
    order = list(PARTS)
    files.sort(key=lambda file: (file["seed"], order.index(file["part"])))
    return {
        "experiment": settings["name"],
        "settings": settings,
        "seeds": sorted({file["seed"] for file in files}),
        "versions": versions(),
        "timings": {f"{file['part']}, seed {file['seed']}": file["seconds"] for file in files},
        "rows": [row for file in files for row in file["rows"]],
    }


def _sizes(train: ImageSet, test: ImageSet) -> dict[str, Any]:
    shapes = sorted({str(image.shape) for image in [*train.images, *test.images]})
    classes = sorted({int(value) for label in train.labels for value in np.unique(label)})
    return {"train": len(train.images), "test": len(test.images), "shapes": shapes, "label values": classes}


def _claim(folder: Path, mark: str) -> None:
    """A folder belongs to one experiment: rows of another must not be taken for its own."""
    path = folder / "experiment.txt"
    if path.exists():
        if path.read_text(encoding="utf-8").strip() != mark:
            raise InputError(f"{folder} holds an experiment with other settings or images; give another folder.")
        return
    if any((folder / "parts").glob("*.json")):
        raise InputError(f"{folder} holds parts of an unknown experiment; give another folder.")
    with atomic_path(path) as temporary:
        temporary.write_text(mark + "\n", encoding="utf-8")


def _write_json(path: Path, values: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
