"""Runs an experiment part by part into a folder; what is there already is not run again.

The folder gets `results.json` (every number, seed, setting, version and timing), `tables.md`, figures, `report.html`,
and the models. Started again, an interrupted experiment goes on where it stopped: a part that is done is not run again,
and of an unfinished one what was scored is kept (see `bench`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hedgerow.config import AugmentConfig
from hedgerow.errors import InputError
from hedgerow.experiments.bench import Bench, write_json
from hedgerow.experiments.data import (
    DRAWN,
    N_DRAWN,
    TEST_SEED,
    TRAIN_SEED,
    ImageSet,
    load_set,
    shrunk,
    spread,
    with_copies,
)
from hedgerow.experiments.outputs import write_outputs
from hedgerow.experiments.parts import ON_REQUEST, PARTS, SETTINGS, SLOW, baseline_config, class_values, usable_parts
from hedgerow.experiments.protocols import PROTOCOLS, Protocol, Scale
from hedgerow.experiments.random_start import SIGMA, schedule
from hedgerow.files import make_folder, write_text
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report, reporting
from hedgerow.refinement.checkpoints import fingerprint
from hedgerow.report.words import versions


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
    """Run the parts for every seed; the results, as in `results.json`.

    parts: None: all that make sense, but for those that run on request only
    data:  "somites", "bodies", or a folder with images/, labels/, train.txt and test.txt; None: the experiment's own
    scale: "small" (minutes a part) or "full" (the paper's size)
    """
    protocol, size = _protocol(name, data, scale)
    check_device(device, is_network=True)
    if min(seeds) < 0:
        raise InputError(f"a seed is {min(seeds)}; give whole numbers of at least 0.")
    train, test = load_part(protocol, size, data, "train"), load_part(protocol, size, data, "test")
    _check_classes(protocol, train, test)
    known = usable_parts(protocol, train)
    left_out = ON_REQUEST if scale == "full" else (*ON_REQUEST, *SLOW)
    chosen = [part for part in known if part not in left_out] if parts is None else list(parts)
    for part in chosen:
        if part not in known:
            raise InputError(f"there is no part {part!r} here; choose from {', '.join(known)}.")
    # Of a folder its name: where it lies is nobody's business, and the images themselves are in the mark.
    settings = {**protocol.to_dict(), "data": Path(data or protocol.data or "").name, "scale": scale}
    settings["sizes"] = _sizes(train, test)
    settings["random start"] = schedule(size.random_steps, 0).to_dict() | {"sigma": SIGMA}
    settings["U-Net and FCN"] = baseline_config(protocol, size, 0).to_dict()
    settings |= SETTINGS
    mark = fingerprint(settings, *train.images, *train.labels, *test.images, *test.labels)
    folder = Path(folder)
    make_folder(folder)
    _claim(folder, mark)
    for room in ("begun", "parts", "models"):
        make_folder(folder / room)
    say(f"{name}: {len(train.images)} images to learn from, {len(test.images)} to test on; {len(chosen)} parts")
    with reporting(progress) as report:
        for seed in seeds:
            turned = with_copies(train, AugmentConfig(protocol.copies), seed)
            bench = Bench(protocol, size, train, turned, test, seed, device, folder, report)
            for part in chosen:
                _run_part(part, bench, say)
                write_json(folder / "results.json", collected(folder, settings))
    results = collected(folder, settings)
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
    if data in DRAWN and protocol.data is not None and data != protocol.data:
        raise InputError(f"{name} is not for {data}; leave out --data for {protocol.data}, or name a folder.")
    if data not in (None, protocol.data) and protocol.measure == "mean_dice":
        protocol = replace(protocol, background=None)  # other images, of which nothing is known
    size = protocol.scales[scale]
    return protocol.scaled(size), size


def load_part(protocol: Protocol, size: Scale, data: str | None, part: str) -> ImageSet:
    """The images of one part, "train" or "test", at the experiment's scale."""
    n = size.n_train if part == "train" else size.n_test
    source = data or protocol.data
    assert source is not None
    if source in DRAWN:
        drawn = {} if size.size is None else {"size": size.size}
        return ImageSet(
            *DRAWN[source](n_images=n or N_DRAWN, seed=TRAIN_SEED if part == "train" else TEST_SEED, **drawn)
        )
    return shrunk(spread(load_set(source, part), n), size.shrink, protocol.is_depth)


def _run_part(part: str, bench: Bench, say: Callable[[str], None]) -> None:
    path, begun = bench.folder / "parts" / f"{part}-{bench.seed}.json", bench.begun_path(part)
    if path.exists():
        begun.unlink(missing_ok=True)
        say(f"{part}, seed {bench.seed}: done before")
        return
    resumed = {"resumed": True} if begun.exists() else {}  # the seconds are of what was left
    if not resumed:
        write_json(begun, {})
    start, cpu = time.perf_counter(), time.process_time()
    rows = PARTS[part](bench)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    written = {"part": part, "seed": bench.seed, "seconds": seconds, "cpu_seconds": cpu, "rows": rows}
    write_json(path, {**written, **resumed, "device": bench.device, "versions": versions()})
    begun.unlink(missing_ok=True)
    measure = bench.protocol.measure
    found = ", ".join(f"{row['model']} {row.get(measure, row['mean_dice']):.3f}" for row in rows)
    say(f"{part}, seed {bench.seed}: {found} ({seconds:.0f} s)")


def collected(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """All that the folder's parts found, with what they were run with."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "parts").glob("*.json")]
    order = list(PARTS)
    files.sort(key=lambda file: (file["seed"], order.index(file["part"])))
    return {
        "experiment": settings["name"],
        "settings": settings,
        "seeds": sorted({file["seed"] for file in files}),
        "timings": {
            f"{file['part']}, seed {file['seed']}": file["seconds"] for file in files if not file.get("resumed")
        },
        "runs": [{name: value for name, value in file.items() if name != "rows"} for file in files],
        "rows": [row for file in files for row in file["rows"]],
    }


def _check_classes(protocol: Protocol, train: ImageSet, test: ImageSet) -> None:
    """What would end a long run in the middle, or leave its tables empty."""
    known, asked = class_values(train.labels), class_values(test.labels)
    if asked - known:
        raise InputError(f"class {min(asked - known)} is in test images only; list an image with it in train.txt.")
    if protocol.background is not None and protocol.background not in known:
        raise InputError(
            f"{protocol.name} takes class {protocol.background} for the background, and no training image has it; "
            "label the background so, or choose another experiment."
        )


def _sizes(train: ImageSet, test: ImageSet) -> dict[str, Any]:
    shapes = sorted({str(image.shape) for image in [*train.images, *test.images]})
    classes = sorted(class_values(train.labels))
    return {"train": len(train.images), "test": len(test.images), "shapes": shapes, "classes": classes}


def _claim(folder: Path, mark: str) -> None:
    """A folder belongs to one experiment: rows of another must not be taken for its own."""
    path = folder / "experiment.txt"
    if path.exists():
        if path.read_text(encoding="utf-8").strip() != mark:
            raise InputError(f"{folder} holds an experiment with other settings or images; give another folder.")
        return
    if any(folder.glob("parts/*.json")) or any(folder.glob("begun/*.json")):
        raise InputError(f"{folder} holds parts of an unknown experiment; give another folder.")
    write_text(path, mark)
