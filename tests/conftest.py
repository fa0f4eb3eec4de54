"""Small images and a small model, made once a session; networks; folders to work in; the command line, in process."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass

import hypothesis
import numpy as np
import pytest

import hedgerow as hr
from hedgerow.cli.app import app, run_program
from hedgerow.forest import default_settings
from helpers.files import write
from helpers.forests import GROWN, grown_stack

CLASSES = (3, 77, 200)
SIZE = (24, 32)
# A busy machine must not fail a test.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="where the GPU kernels are tested")


def pytest_configure(config):
    # Without a GPU, Triton's kernels are run by its interpreter; it must know before Triton is imported.
    if config.getoption("--device") == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    # What the tests write must not be noted in the home of whoever runs them.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hedgerow-tests-")


def pytest_unconfigure(config):
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _nobody_pulls_the_plug():
    """Files of tests need not reach the disk: it took a quarter of the time. tests/test_files.py tells that ours do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda opened: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_encoder_by_default():
    """Small models for most tests; tests/forest/test_choosing.py tells when a pretrained network is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default_settings, "default_encoder_is_installed", lambda: False)
        yield


@pytest.fixture(scope="session")
def gpu(request):
    """The device on which Triton's kernels run: a real one if --device cuda asks for it, else the interpreter's."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton", reason="Triton is not installed")
    device = request.config.getoption("--device")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return device


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
        drop_levels=False,
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


@pytest.fixture(scope="module", params=GROWN)
def grown(request):
    """A grown stack of every kind of feature, and an image of whole numbers that it has not seen."""
    return grown_stack(request.param)


@pytest.fixture(scope="session")
def unseen():
    """Images that the forests were not grown on, as `validation` takes them."""
    drawn = [draw(seed) for seed in (50, 51)]
    return [image for image, _ in drawn], [labels for _, labels in drawn]


# Networks need PyTorch, which may be missing, and can be changed, so each module of tests has its own.


@pytest.fixture(scope="module")
def net(stack):
    pytest.importorskip("torch")
    return hr.to_convnet(stack)


@pytest.fixture(scope="module")
def blurred_net(stack):
    """A network of splits so dull that it mistakes a part of the pixels."""
    pytest.importorskip("torch")
    return hr.to_convnet(stack, "soft", hr.Sharpness(1.0, 1.0, 0.5))


@pytest.fixture(scope="module")
def refined(net, example, unseen):
    """The network after a short refinement, scored on images that the forests have not seen."""
    from helpers.refinements import run

    return run(net, example, validation=unseen)


@pytest.fixture(scope="session")
def model_file(stack, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.hedge"
    hr.save(stack, path)
    return path


def finish(command, capsys, *arguments):
    """Runs a command in this process -> Finished."""
    capsys.readouterr()
    try:
        command(*arguments)
        code = 0
    except SystemExit as leaving:
        code = leaving.code
    return Finished(code, *capsys.readouterr())


@pytest.fixture
def hedgerow(capsys):
    """Runs the command line in this process: hedgerow("info", path) -> Finished; clock: the time in seconds"""

    def run(*arguments, clock=time.monotonic):
        return finish(lambda: run_program(app, "hedgerow", list(map(str, arguments)), clock), capsys)

    return run


@pytest.fixture
def experiment(capsys):
    """Runs the command line of the experiments in this process: experiment("vnc", "-o", path) -> Finished."""
    from experiments.__main__ import app as experiments

    def run(*arguments):
        return finish(lambda: run_program(experiments, "python -m experiments", list(map(str, arguments))), capsys)

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
def trained_place(place, model_file):
    """The folder of `place`, with the model grown on it and settings for a short refinement."""
    pytest.importorskip("torch")
    from helpers.refinements import SHORT

    shutil.copy(model_file, place / "model.hedge")
    SHORT.write(place / "short.toml")
    return place


@pytest.fixture
def listed_place(place):
    """The folder of `place`, with lists of one training and one test image, as experiments take it."""
    (place / "train.txt").write_text("a0\n")
    (place / "test.txt").write_text("a1\n")
    return place


@pytest.fixture
def net_file(refined, trained_place):
    """The refined network in a file of `trained_place`."""
    hr.save(refined, trained_place / "made.hedge")
    return trained_place / "made.hedge"


@pytest.fixture
def train(hedgerow, place):
    """Trains on the folder: train("--seed", 3) -> Finished, the model in model.hedge."""

    def run(*options, images="images", labels="labels", **more):
        settings = () if "--config" in options else ("--config", place / "settings.toml")
        files = (place / images, place / labels, "-o", place / "model.hedge")
        return hedgerow("train", *files, *settings, *options, **more)

    return run
