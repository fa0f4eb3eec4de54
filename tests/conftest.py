"""Small images and a small model, made once a session; a folder to train in; the command line in this process."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

import hedgerow as hr
from files import write
from hedgerow.cli import main

CLASSES = (3, 77, 200)
SIZE = (24, 32)


@dataclass(frozen=True)
class Example:
    """Images (24,32) uint8 whose brightness tells the class, and their labels, of the classes CLASSES."""

    images: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Finished:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str


def draw(seed, classes=CLASSES, size=SIZE):
    """One image (H,W) uint8 and its label map (H,W) int32 with three regions."""
    indices = np.zeros(size, int)
    indices[:, size[1] // 3 :] = 1
    indices[size[0] // 2 :, 2 * size[1] // 3 :] = 2
    noise = np.random.default_rng(seed).normal(0, 12, size)
    return (40 + 80 * indices + noise).clip(0, 255).astype(np.uint8), np.array(classes, np.int32)[indices]


@pytest.fixture(scope="session")
def tiny_config():
    """Settings with which training takes a fraction of a second."""
    return hr.StackConfig(
        n_levels=2,
        n_trees=3,
        max_depth=5,
        min_split=5,
        sigmas=(0.7, 2.0),
        context=hr.ContextConfig(window=9, n_offsets=3),
        sampling=hr.SamplingConfig(step=1, fraction=0.5),
        augment=hr.AugmentConfig(copies=1),
    )


@pytest.fixture(scope="session")
def example():
    drawn = [draw(seed) for seed in range(2)]
    return Example(tuple(image for image, _ in drawn), tuple(labels for _, labels in drawn))


@pytest.fixture(scope="session")
def stack(example, tiny_config):
    return hr.fit_stack(example.images, example.labels, tiny_config)


@pytest.fixture(scope="session")
def model_file(stack, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.hedge"
    hr.save(stack, path)
    return path


@pytest.fixture
def hedgerow(monkeypatch, capsys):
    """Runs the command line in this process: hedgerow("info", path) -> Finished."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["hedgerow", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code
        return Finished(code, *capsys.readouterr())

    return run


@pytest.fixture
def place(tmp_path, example, tiny_config):
    """A folder with images/, labels/ and settings.toml, ready to train."""
    for number, (image, labels) in enumerate(zip(example.images, example.labels, strict=True)):
        write(tmp_path / "images" / f"a{number}.png", image)
        write(tmp_path / "labels" / f"a{number}.png", labels.astype(np.uint8))
    tiny_config.write(tmp_path / "settings.toml")
    return tmp_path


@pytest.fixture
def train(hedgerow, place):
    """Trains on the folder: train("--seed", 3) -> Finished, the model in model.hedge."""

    def run(*options, images="images", labels="labels"):
        settings = () if "--config" in options else ("--config", place / "settings.toml")
        return hedgerow("train", place / images, place / labels, "-o", place / "model.hedge", *settings, *options)

    return run
