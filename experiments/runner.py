"""Runs an experiment part by part into a folder; finished parts are skipped.

The folder gets `results.json` (every number, seed, setting, version and timing), `tables.md`, figures, `report.html`,
and the models. An interrupted experiment resumes: finished parts are skipped, and the scores of an unfinished part are
read back (see `bench`).
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.bench import Bench, write_json
from experiments.data import DRAWN, load_set, present, recounted, shrunk, with_copies
from experiments.outputs import WRITTEN, write_outputs
from experiments.parts import ON_REQUEST, PARTS, SETTINGS, SLOW, baseline_config, usable_parts
from experiments.protocols import PROTOCOLS, Protocol, Scale
from experiments.random_start import SIGMA, schedule
from hedgerow.config import AugmentConfig, RefineConfig
from hedgerow.errors import InputError
from hedgerow.files import fingerprint, make_folder, write_text
from hedgerow.images.labelled import LabelledSet
from hedgerow.locking import locked
from hedgerow.overwrite_guard import check_overwriting, remove_state
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report, reporting
from hedgerow.report.formatting import versions

ROOMS = ("begun", "parts", "models")  # subfolders of an experiment that hold only its own files


def run_experiment(
    name: str,
    folder: str | Path,
    *,
    data: str | None = None,
    scale: str = "small",
    seeds: Sequence[int] = (0,),
    parts: Sequence[str] | None = None,
    device: str = "cpu",
    develop: bool = False,
    refine: RefineConfig | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
    progress: Report | None = None,
) -> dict[str, Any]:
    """Run the parts for every seed; returns the results as in `results.json`.

    parts:   names of parts; None: all that apply, except those that must be requested
    data:    "somites", "bodies", or a folder with images/, labels/, train.txt and test.txt; None: the experiment's own
    scale:   "small" (minutes per part), "medium" (the default settings) or "full" (the paper's size)
    develop: score on the last quarter of the training images; the test images are not read
    refine:  Hedgerow's settings of refinement, instead of those of the scale
    overwrite: also overwrite existing files that Hedgerow did not write
    """
    protocol, size = _protocol(name, data, scale)
    protocol = protocol if refine is None else replace(protocol, own_refine=refine)
    check_device(device, is_network=True)
    if min(seeds) < 0:
        raise InputError(f"a seed is {min(seeds)}; give whole numbers of at least 0.")
    train, test = load_sets(protocol, size, data, develop)
    known = usable_parts(protocol, train)
    left_out = ON_REQUEST if scale == "full" else (*ON_REQUEST, *SLOW)
    chosen = [part for part in known if part not in left_out] if parts is None else list(parts)
    for part in chosen:
        if part not in known:
            raise InputError(f"there is no part {part!r} here; choose from {', '.join(known)}.")
    # Only the name of a folder is recorded, not its path; the fingerprint covers the images.
    settings = {**protocol.to_dict(), "data": Path(data or protocol.data or "").name, "scale": scale}
    settings["scored on"] = "the last quarter of the training images" if develop else "the test images"
    settings["sizes"] = _sizes(train, test)
    settings["random start"] = schedule(size.random_steps, 0).to_dict() | {"sigma": SIGMA}
    settings["U-Net and FCN"] = baseline_config(protocol, size, 0).to_dict()
    settings |= SETTINGS
    arrays = (array for image in (*train, *test) for array in (image.planes, image.target))
    mark = fingerprint(settings, *arrays)
    folder = Path(folder)
    check_overwriting([folder / name for name in WRITTEN], [], overwrite)
    make_folder(folder)
    with locked(folder / "experiment"), reporting(progress) as report:
        _claim(folder, mark)
        for room in ROOMS:
            make_folder(folder / room)
        say(f"{name}: {len(train)} training images, {len(test)} test images, {len(chosen)} parts")
        for seed in seeds:
            turned = with_copies(train, AugmentConfig(protocol.copies, protocol.rotation), seed)
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
        raise InputError(f"{name} needs images: give a folder with images/, labels/, train.txt and test.txt (--data).")
    if data in DRAWN and protocol.data is not None and data != protocol.data:
        raise InputError(f"{name} does not run on {data}; leave out --data to use {protocol.data}, or give a folder.")
    if data not in (None, protocol.data) and protocol.measure == "mean_dice":
        protocol = replace(protocol, background=None)  # nothing is known about the background of other images
    size = protocol.scales[scale]
    return protocol.scaled(size), size


def load_sets(protocol: Protocol, size: Scale, data: str | None, develop: bool) -> tuple[LabelledSet, LabelledSet]:
    """The training and the test images at the experiment's scale, with the classes of the training images."""
    train = _load_part(protocol, size, data, "train")
    if develop:
        n = len(train) * 3 // 4
        if n == 0:
            raise InputError("--develop needs at least two training images: one to train on and one to score on.")
        train, test = (replace(train, images=some) for some in (train.images[:n], train.images[n:]))
    else:
        test = _load_part(protocol, size, data, "test")
    train = recounted(train)
    _check_classes(protocol, train, test)
    return train, test.with_classes_of(train)


def _load_part(protocol: Protocol, size: Scale, data: str | None, part: str) -> LabelledSet:
    source = data or protocol.data
    assert source is not None
    found = load_set(source, part, size.n_train if part == "train" else size.n_test, size.size)
    return found if source in DRAWN else shrunk(found, size.shrink, protocol.is_depth)


def _run_part(part: str, bench: Bench, say: Callable[[str], None]) -> None:
    path, begun = bench.folder / "parts" / f"{part}-{bench.seed}.json", bench.begun_path(part)
    if path.exists():
        remove_state(begun)
        say(f"{part}, seed {bench.seed}: already done")
        return
    resumed = {"resumed": True} if begun.exists() else {}  # the recorded seconds are those of the remaining work
    if not resumed:
        bench.write_rows(part, {})
    start, cpu = time.perf_counter(), time.process_time()
    rows = PARTS[part](bench)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    written = {"part": part, "seed": bench.seed, "seconds": seconds, "cpu_seconds": cpu, "rows": rows}
    write_json(path, {**written, **resumed, "device": bench.device, "versions": versions()})
    remove_state(begun)
    measure = bench.protocol.measure
    scores = ", ".join(f"{row['model']} {row.get(measure, row['mean_dice']):.3f}" for row in rows)
    say(f"{part}, seed {bench.seed}: {scores} ({seconds:.0f} s)")


def collected(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The results of all parts in the folder, with their settings."""
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


def _check_classes(protocol: Protocol, train: LabelledSet, test: LabelledSet) -> None:
    """Raise InputError for classes that would stop a long run halfway or leave its tables empty."""
    new = present(test) - set(train.classes)
    if new:
        raise InputError(f"class {min(new)} occurs only in test images; add an image with it to the training images.")
    if protocol.background is not None and protocol.background not in train.classes:
        raise InputError(
            f"{protocol.name} uses class {protocol.background} as background, but no training image has it; give the "
            "background this label, or choose another experiment."
        )


def _sizes(train: LabelledSet, test: LabelledSet) -> dict[str, Any]:
    shapes = sorted({str(image.size) for image in (*train, *test)})
    return {"train": len(train), "test": len(test), "shapes": shapes, "classes": list(train.classes)}


def _claim(folder: Path, mark: str) -> None:
    """Raise InputError if the folder belongs to another experiment, whose rows must not be mixed with these."""
    path = folder / "experiment.txt"
    if path.exists():
        if path.read_text(encoding="utf-8").strip() != mark:
            raise InputError(f"{folder} holds an experiment with other settings or images; give another folder.")
        return
    if any(any(folder.glob(f"{room}/*")) for room in ROOMS):
        raise InputError(f"{folder} holds parts of an unknown experiment; give another folder.")
    write_text(path, mark)
