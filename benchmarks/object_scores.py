"""Average precision of objects in nuclei that the models do not know, beside a threshold of Otsu with scikit-image's
watershed: docs/measurements/objects.md. Prints a line as soon as a number is known.

    python benchmarks/object_scores.py --data FOLDER [--set nuclei_fluorescence] [--images 1 4 20] [--seeds 3]
                                       [--effort fast] [--scribbles] [--develop] [--change NAME=VALUE ...]

FOLDER holds sets with images/, objects/, train.txt and test.txt. Seed k trains on the images from k times their number
on, with seed k, so that seeds differ in images, too. Scores of --develop are on training images not trained on.
--change sets a setting of the stack; `window` and `copies` are those of its offsets and altered copies.
"""

from __future__ import annotations

import argparse
import ast
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np

import hedgerow as hr
from hedgerow import jobs, synthetic
from hedgerow.forest.settings_choice import SLIGHTLY_ALTERED
from hedgerow.images.instances import OBJECT_LEGEND, classes_of_objects
from hedgerow.images.legend import write_legend
from hedgerow.images.object_metrics import OVERLAPS
from hedgerow.progress import silent

PAINTED = 0.01  # of the pixels
Find = Callable[[np.ndarray], np.ndarray]


def otsu(image: np.ndarray) -> np.ndarray:
    """Objects as in scikit-image's gallery: a threshold, the distance from the edge, and a watershed of its peaks."""
    from scipy import ndimage
    from skimage.color import rgb2hed
    from skimage.feature import peak_local_max
    from skimage.filters import threshold_otsu
    from skimage.morphology import remove_small_objects
    from skimage.segmentation import watershed

    grey = rgb2hed(image[..., :3])[..., 0] if image.ndim == 3 else image
    mask = ndimage.binary_fill_holes(remove_small_objects(grey > threshold_otsu(grey), max_size=29))
    distance = ndimage.gaussian_filter(ndimage.distance_transform_edt(mask), 1)
    regions, _ = ndimage.label(mask)
    peaks = peak_local_max(distance, min_distance=7, labels=regions)
    seeds = np.zeros(mask.shape, int)
    seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    return watershed(-distance, seeds, mask=mask)


def changes_of(words: Sequence[str]) -> dict[str, Any]:
    """Settings by name, from NAME=VALUE."""
    changes = {}
    for name, _, text in (word.partition("=") for word in words):
        value = ast.literal_eval(text) if text[:1] in "0123456789TF" else text
        if name == "window":
            name, value = "context", hr.ContextConfig(window=value)
        if name == "copies":
            name, value = "augment", replace(SLIGHTLY_ALTERED, copies=value)
        changes[name] = value
    return changes


def trained(folder: Path, stems: Sequence[str], effort: jobs.Effort, scribbles: bool, changes: dict[str, Any]) -> Find:
    """A model of these images, as the command trains it."""
    images = [next((folder / "images").glob(f"{stem}*")) for stem in stems]
    objects = [next((folder / "objects").glob(f"{stem}*")) for stem in stems]
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "model.hedge"
        if scribbles:
            objects = [painted(file, changes["seed"] + k, Path(place)) for k, file in enumerate(objects)]
            write_legend(Path(place) / "classes.toml", OBJECT_LEGEND)
        kind = "classes" if scribbles else "objects"
        request = jobs.TrainRequest(images, objects, output, effort, changes=changes, label_kind=kind)
        jobs.train(request, progress=silent)
        return hr.load(output).predict_objects


def painted(file: Path, seed: int, folder: Path) -> Path:
    """Strokes of background, objects and boundaries, in a file of the same name."""
    strokes = synthetic.paint(classes_of_objects(imageio.imread(file).astype(np.int32)), PAINTED, seed)
    imageio.imwrite(folder / file.name, strokes)
    return folder / file.name


def scored(folder: Path, stems: Sequence[str], find: Find) -> str:
    """Average precision at each overlap, the mean over images, and of all objects together."""
    total, each = None, []
    for stem in stems:
        image, truth = (imageio.imread(next((folder / part).glob(f"{stem}*"))) for part in ("images", "objects"))
        one = hr.object_scores([truth], [find(image)])
        each.append(list(one.average_precision.values()))
        total = one if total is None else total + one
    means = np.nanmean(each, axis=0)
    return (
        "  ".join(f"{overlap} {mean:.3f}" for overlap, mean in zip(OVERLAPS, means, strict=True))
        + f"  all objects {total.average_precision[0.5]:.3f}  split {total.n_split} merged {total.n_merged}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", default="nuclei_fluorescence")
    parser.add_argument("--images", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--scribbles", action="store_true", help="paint 1 %% of the pixels instead of all")
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--change", nargs="+", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    folder = arguments.data / arguments.set
    train, test = ((folder / f"{part}.txt").read_text().split() for part in ("train", "test"))
    if arguments.develop:
        train, test = train[: len(train) // 2], train[len(train) // 2 :]
    print(f"otsu: {scored(folder, test, otsu)}", flush=True)
    for n in arguments.images:
        for seed in range(arguments.seeds):
            chosen = [train[(seed * n + k) % len(train)] for k in range(n)]
            start = time.process_time()
            changes = {"seed": seed, **changes_of(arguments.change)}
            find = trained(folder, chosen, arguments.effort, arguments.scribbles, changes)
            cost = time.process_time() - start
            print(f"{n} images, seed {seed}, {cost:.0f} CPU s: {scored(folder, test, find)}", flush=True)


if __name__ == "__main__":
    main()
