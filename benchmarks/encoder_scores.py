"""Mean Dice of stacks on the filter bank and on each pretrained network that is on this machine, on several data sets:
docs/measurements/encoders.md. Prints a line as soon as a number is known.

    python benchmarks/encoder_scores.py --data FOLDER [--sets NAME ...] [--features KIND ...] [--develop]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import tifffile

import hedgerow as hr
from hedgerow import synthetic
from hedgerow.config import EncoderConfig, StackConfig
from hedgerow.encoders.catalogue import PUBLISHED, is_installed
from hedgerow.forest.default_settings import settings_for
from hedgerow.images.metrics import scores
from hedgerow.progress import silent
from photographs import photographs

Pairs = list[tuple[np.ndarray, np.ndarray]]
COUNTS = (1, 4)  # training images, or volumes
PAINTED, UNLABELLED = 0.01, 255
TEXTURES = {"brick": 0, "grass": 1, "gravel": 2, "hubble_deep_field": 3, "immunohistochemistry": 4, "retina": 5}
SIDE = 256  # of a mosaic of textures


def stems(folder: Path, develop: bool) -> tuple[list[str], list[str]]:
    """Names of the training and of the test images; to develop: of two parts of the training images."""
    train, test = ((folder / f"{part}.txt").read_text().split() for part in ("train", "test"))
    return (train[: len(train) // 2], train[len(train) // 2 :]) if develop else (train, test)


def membranes(data: Path, n: int, develop: bool) -> tuple[Pairs, Pairs]:
    """Sections of an electron microscope at half their size."""
    folder = data / "vnc_sstem"

    def pair(stem: str) -> tuple[np.ndarray, np.ndarray]:
        image, labels = (imageio.imread(folder / part / f"{stem}.png") for part in ("images", "labels"))
        half = image.astype(np.float32).reshape(512, 2, 512, 2).mean(axis=(1, 3)).round().astype(np.uint8)
        return half, labels[::2, ::2]

    train, test = stems(folder, develop)
    return [pair(stem) for stem in train[:n]], [pair(stem) for stem in test[-4:]]


def hippocampus(data: Path, n: int, develop: bool) -> tuple[Pairs, Pairs]:
    """All slices of n volumes, and of eight others."""
    folder = data / "hippocampus"

    def slices(stem: str) -> Pairs:
        volumes = (tifffile.imread(folder / part / f"{stem}.tif") for part in ("images", "labels"))
        return list(zip(*volumes, strict=True))

    train, test = stems(folder, develop)
    return [s for stem in train[:n] for s in slices(stem)], [s for stem in test[:8] for s in slices(stem)]


def nuclei(kind: str) -> Callable[[Path, int, bool], tuple[Pairs, Pairs]]:
    def pairs(data: Path, n: int, develop: bool) -> tuple[Pairs, Pairs]:
        """Crops of 256 x 256, in the classes background, inside and border."""
        from skimage.segmentation import find_boundaries

        folder = data / f"nuclei_{kind}"

        def pair(stem: str) -> tuple[np.ndarray, np.ndarray]:
            image, objects = (
                imageio.imread(next((folder / part).glob(f"{stem}*")))[:256, :256] for part in ("images", "objects")
            )
            return image, np.where(find_boundaries(objects, mode="thick") & (objects > 0), 2, objects > 0)

        train, test = stems(folder, develop)
        return [pair(stem) for stem in train[:n]], [pair(stem) for stem in test[:10]]

    return pairs


def textures(data: Path, n: int, develop: bool) -> tuple[Pairs, Pairs]:
    """Mosaics of pieces of photographs; those for training come from the left parts, those to score from the right."""
    from skimage import data as stored

    sources = [getattr(stored, name)() for name in TEXTURES]
    sources = [image if image.ndim == 3 else np.stack([image] * 3, axis=-1) for image in sources]

    def mosaic(seed: int, left: float, right: float) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        centres, classes = random.uniform(0, SIDE, (18, 2)), random.permutation(np.arange(18) % len(sources))
        pixels = np.moveaxis(np.indices((SIDE, SIDE)), 0, -1)
        nearest = ((pixels[:, :, None] - centres) ** 2).sum(axis=-1).argmin(axis=-1)
        image = np.zeros((SIDE, SIDE, 3), np.uint8)
        for cell, source in enumerate(sources[value] for value in classes):
            height, width = source.shape[:2]
            low, high = int(left * width), int(right * width)
            rows = np.arange(SIDE) + random.integers(height)
            columns = low + (np.arange(SIDE) + random.integers(high)) % (high - low)
            here = nearest == cell
            image[here] = source[rows % height][:, columns][here]
        return image, classes[nearest].astype(np.uint8)

    places = (0.0, 0.3), (0.3, 0.5) if develop else (0.5, 1.0)
    return [mosaic(i, *places[0]) for i in range(n)], [mosaic(100 + i, *places[1]) for i in range(4)]


SETS = {
    "membranes": membranes,
    "hippocampus": hippocampus,
    "nuclei_fluorescence": nuclei("fluorescence"),
    "nuclei_histology": nuclei("histology"),
    "textures": textures,
}


def stack_score(train: Pairs, test: Pairs, config: StackConfig, background: bool) -> float:
    """Mean Dice of all classes, without the first unless it counts."""
    images, labels = (list(part) for part in zip(*train, strict=True))
    model = hr.fit_stack(images, labels, config, unlabelled=UNLABELLED, progress=silent)
    predicted = [model.predict(image, progress=silent) for image, _ in test]
    dice = scores([target for _, target in test], predicted, list(model.classes)).dice
    return float(np.mean(dice[0 if background else 1 :]))


def strokes_score(features: str, encoder: EncoderConfig | None) -> float:
    """Photographs with a hundredth painted, scored on the rest."""
    dice = []
    for _, image, labels in photographs():
        strokes = synthetic.paint(labels, PAINTED, seed=0)
        config = changed(settings_for(PAINTED, keep_features=True), features, encoder)
        predicted = hr.fit_stack([image], [strokes], config, progress=silent).predict(image, progress=silent)
        rest = np.where(strokes == UNLABELLED, labels, UNLABELLED)
        dice.append(scores([rest], [predicted], np.unique(labels[labels != UNLABELLED]).tolist()).mean_dice)
    return float(np.mean(dice))


def changed(config: StackConfig, features: str, encoder: EncoderConfig | None) -> StackConfig:
    from dataclasses import replace

    encoder = encoder or EncoderConfig()
    name = features.partition("encoder:")[2] or encoder.name
    return replace(config, features=features, encoder=replace(encoder, name=name))


def kinds() -> list[str]:
    names = [name for name in PUBLISHED if is_installed(name)]
    return ["bank", *(f"encoder:{name}" for name in names), *(f"bank+encoder:{name}" for name in names)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=[*SETS, "strokes"])
    parser.add_argument("--features", nargs="+", default=kinds())
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--scale", type=float, help="of the network's input; by default its usual one")
    parser.add_argument("--layers", nargs="+", default=[])
    parser.add_argument("--develop", action="store_true", help="train and score on parts of the training images")
    parser.add_argument("--cache", type=Path, help="folder for the layers of networks")
    asked = parser.parse_args()
    if asked.cache:
        hr.cache_features(asked.cache)
    for name in asked.sets:
        for n in asked.counts if name in SETS else (1,):
            for features in asked.features:
                encoder = EncoderConfig(scale=asked.scale, layers=tuple(asked.layers))
                begin = time.process_time()
                if name in SETS:
                    train, test = SETS[name](asked.data, n, asked.develop)
                    config = changed(StackConfig(), features, encoder)
                    dice = stack_score(train, test, config, background=name != "hippocampus")
                else:
                    dice = strokes_score(features, encoder)
                row = {"set": name, "n": n, "features": features, "scale": asked.scale, "layers": asked.layers}
                seconds = time.process_time() - begin
                row |= {"develop": asked.develop, "dice": round(dice, 4), "cpu": round(seconds, 1)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
