"""How often does training take 0 for unpainted? It should for paint, and should not for full labels.

Paint is strokes, dabs and clicks inside the classes of house fronts, inside the two halves of scikit-image's
photographs, and inside nuclei if folders with them are given. Full labels are windows and doors of house fronts,
embryos, coins and nuclei on a background of 0, with every coin and nucleus in one of two classes.

python benchmarks/unlabelled_rule.py [DATA ...]: folders with images/ and objects/ (numbers, 0 is the background)
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy import ndimage

from hedgerow import synthetic
from hedgerow.errors import QuestionError
from hedgerow.images.array_checks import to_planes
from hedgerow.images.classes import MOST_PIXELS, unlabelled_value
from hedgerow.images.pairing import find_files, stem_of
from hedgerow.images.reading import read_image
from hedgerow.images.regions import Region

Labelled = tuple[str, np.ndarray, np.ndarray]
"""Kind, image (H,W[,C]), and labels (H,W), in which 0 has most pixels."""
DAB_RADII, N_DABS, N_CLICKS = (4, 10, 20), 2, 6


def answer(image: np.ndarray, labels: np.ndarray) -> str:
    """The message to the user: "asked", "noted" or "nothing"."""
    notes: list[str] = []
    planes = to_planes(image)
    try:
        unlabelled_value([labels.astype(np.int32)], [partial(Region.of, array=planes)], None, notes.append)
    except QuestionError:
        return "asked"
    return "noted" if notes else "nothing"


def paint(image: np.ndarray, classes: np.ndarray, seed: int) -> Iterator[Labelled]:
    """Strokes, dabs and clicks inside the classes (H,W), on 0."""
    strokes = synthetic.paint(classes.astype(np.uint8), 0.01, seed)
    yield "strokes", image, np.where(strokes == 255, 0, strokes.astype(int) + 1)
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(classes.shape)
    for radius in DAB_RADII:
        dabs, clicks = np.zeros(classes.shape, int), np.zeros(classes.shape, int)
        for value in np.unique(classes):
            places = np.argwhere(classes == value)
            at = places[rng.choice(len(places), N_CLICKS)]
            clicks[at[:, 0], at[:, 1]] = value + 1
            depth = ndimage.distance_transform_edt(np.pad(classes == value, 1))[1:-1, 1:-1]
            inside = np.argwhere(depth > radius)
            for row, column in inside[rng.choice(len(inside), N_DABS)] if len(inside) else ():
                dabs[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = value + 1
        if len(np.unique(dabs)) > 2:
            yield f"dabs of radius {radius}", image, dabs
    yield "clicks", image, clicks


def objects_in_two_classes(numbers: np.ndarray) -> np.ndarray:
    """(H,W): 1 or 2 for each numbered object."""
    classes = np.random.default_rng(0).integers(1, 3, int(numbers.max()) + 1)
    return np.where(numbers > 0, classes[numbers], 0)


def photographs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Photographs whose left and right halves are the classes."""
    from skimage import data  # of the extra `bench`

    for image in (data.astronaut(), data.coffee(), data.chelsea(), data.rocket(), data.camera()):
        yield image, (np.indices(image.shape[:2])[1] > image.shape[1] // 2).astype(int)


def drawn(folders: list[Path]) -> tuple[list[Labelled], list[Labelled]]:
    """Paint, and full labels."""
    painted: list[Labelled] = []
    full: list[Labelled] = []
    for i, (image, labels) in enumerate(zip(*synthetic.facades(8, seed=1), strict=True)):
        painted += paint(image, labels, i)
        full.append(("windows and doors", image, np.where((labels == 1) | (labels == 2), labels, 0)))
    full += [("embryos", *pair) for pair in zip(*synthetic.somites(8, seed=1), strict=True)]
    for i, (image, classes) in enumerate(photographs()):
        painted += paint(image, classes, i)
    from skimage import data

    coins = data.coins()
    is_coin = ndimage.binary_fill_holes(ndimage.gaussian_filter(coins.astype(float), 2) > 120)
    painted += paint(coins, is_coin.astype(int), 0)
    numbers, _ = ndimage.label(np.pad(is_coin, 200))  # so that 0 has most
    full.append(("coins", np.pad(coins, 200, "reflect"), objects_in_two_classes(numbers)))
    for folder in folders:
        numbers_of = {stem_of(path): path for path in find_files(folder / "objects")}
        for i, file in enumerate(find_files(folder / "images")):
            image, numbers = read_image(file), read_image(numbers_of[stem_of(file)])
            painted += paint(image, (numbers > 0).astype(int), i)
            full.append((folder.name, image, objects_in_two_classes(numbers)))
    return painted, full


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folders", nargs="*", type=Path, help="folders with images/ and objects/")
    folders = arguments.parse_args().folders
    print("| labels | sets | asked | noted | nothing |\n|---|---|---|---|---|")
    for labelled in drawn(folders):
        answers: dict[str, Counter[str]] = {}
        for kind, image, labels in labelled:
            if (labels == 0).mean() >= MOST_PIXELS:
                answers.setdefault(kind, Counter())[answer(image, labels)] += 1
        for kind, counts in sorted(answers.items()):
            print(f"| {kind} | {counts.total()} | {counts['asked']} | {counts['noted']} | {counts['nothing']} |")


if __name__ == "__main__":
    main()
