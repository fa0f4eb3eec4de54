"""The demo: the whole pipeline on built-in images, and the gain of each step on test images."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import extras, synthetic
from hedgerow.config import ContextConfig, RefineConfig, StackConfig
from hedgerow.errors import ConfigError
from hedgerow.files import PathLike, make_folder
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LabelledSet
from hedgerow.io import model_file
from hedgerow.jobs.estimates import BEST_MINUTES
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Say, quiet, silent
from hedgerow.report.figures import write_comparison
from hedgerow.report.page import write_report
from hedgerow.synthetic import write_sample

CONFIGS = {
    "somites": StackConfig(),
    "bodies": StackConfig.kinect(held_out="folds", context=ContextConfig(n_candidates=100)),
}
STEPS = {"somites": 120, "bodies": 120}  # fewer than the default, so that the demo takes minutes
BACKGROUND_CLASSES = {"somites": 0, "bodies": 19}
N_TRAIN, N_TEST = 16, 8
SHOWN = 3  # test images in comparison.png


@dataclass(frozen=True)
class DemoRequest:
    """Built-in images to run the whole pipeline on.

    output:    the folder for images, models, pictures and the report
    kind:      the generator of the images, "somites" or "bodies"
    overwrite: also overwrite existing files that Hedgerow did not write
    """

    output: PathLike
    kind: str = "somites"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.kind not in CONFIGS:
            raise ConfigError(f"there is no demo of {self.kind!r}; choose one of {', '.join(CONFIGS)}.")


def run_demo(request: DemoRequest, *, say: Say = quiet) -> None:
    """Train on built-in images of one kind and test on others; write images, models, pictures and the report."""
    kind, folder, overwrite = request.kind, Path(request.output), request.overwrite
    names = ("comparison.png", "report.html", "DF.hedge", "ConvNet.hedge", "MB2.hedge")
    check_overwriting([folder / name for name in names], [], overwrite)
    make_folder(folder)
    draw = getattr(synthetic, kind)
    train = labelled_set(*draw(n_images=N_TRAIN, seed=0))
    test = labelled_set(*draw(n_images=N_TEST, seed=1)).with_classes_of(train)
    write_sample(kind, folder, N_TRAIN, 0, overwrite=overwrite)
    where = folder / "images"
    say(f"{N_TRAIN} training images and {N_TEST} test images of {train.n_classes} classes: {where}")

    start = time.perf_counter()
    stack = grow_stack(train, CONFIGS[kind])
    seconds = {"DF": time.perf_counter() - start}
    levels = [stack.level_outputs(picture, progress=silent) for picture in test.pictures()]
    predictions = {f"level {k + 1}": [output[k].argmax(axis=0) for output in levels] for k in range(stack.n_levels)}
    say("\nmean Dice on the test images after each level")
    for name, maps in predictions.items():
        say(f"{name:<10} {test.score(maps).mean_dice:.3f}")
    models: dict[str, Any] = {"DF": stack}
    if extras.is_there("torch"):
        models |= _refined(stack, train, STEPS[kind], seconds, say)
    else:
        say("\nPyTorch is not installed, so the stack is not refined; for the whole demo: pip install '.[net]'")
    predictions |= _table(models, test, seconds, folder, say)
    del predictions["DF"]  # equals the last level of the stack
    write_comparison(
        folder / "comparison.png",
        replace(test, images=test.images[:SHOWN]),
        predictions,
        background=BACKGROUND_CLASSES[kind],
        blank=stack.features.blank,
    )
    written = ["comparison.png"]
    if extras.is_there("torch") and extras.is_there("jinja2"):
        _report(kind, models, test, seconds, folder)
        written.append("report.html")
    say(f"\nopen: {', '.join(str(folder / name) for name in written)}")
    last = folder / f"{list(models)[-1]}.hedge"
    say(f"next: hedgerow predict {last} {where} -o segmented/")
    if extras.is_there("torch"):
        best = f"hedgerow train {where} {folder / 'labels'} -o best.hedge --effort best"
        say(f"for a better model, with convolutional networks, in about {BEST_MINUTES:g} minutes: {best}")


def _refined(
    stack: ForestStack, train: LabelledSet, n_steps: int, seconds: dict[str, float], say: Say
) -> dict[str, Any]:
    """The refined network of the stack, and the forests that it is mapped back to."""
    from hedgerow.network.mapback import to_forest
    from hedgerow.network.mapping import to_convnet
    from hedgerow.refinement.loop import refine_labelled

    start = time.perf_counter()
    net = to_convnet(stack)
    layers = net.layers()
    n_weights = sum(layer.weights for layer in layers)
    say(f"\nconverted to a network of {len(layers) - 1} hidden layers and {n_weights:,} weights; refining it")
    net = refine_labelled(net, train, RefineConfig(n_steps=n_steps, held_out=0.0))
    seconds["ConvNet"] = time.perf_counter() - start
    start = time.perf_counter()
    back = to_forest(net, train.pictures(), "leaf_mean")
    seconds["MB2"] = time.perf_counter() - start
    return {"ConvNet": net, "MB2": back}


def _table(
    models: dict[str, Any], test: LabelledSet, seconds: dict[str, float], folder: Path, say: Say
) -> dict[str, list[np.ndarray]]:
    """Print one line per model, save the models, and return their predictions for the test images."""
    about = {"DF": "the stack of forests", "ConvNet": "its network, refined", "MB2": "the network mapped back"}
    say("\n                                          mean Dice    gain  training  per image    model")
    predictions, first = {}, 0.0
    for name, model in models.items():
        start = time.perf_counter()
        predictions[name] = [predict_indices(model, image.planes) for image in test]
        each = (time.perf_counter() - start) / len(test)
        dice = test.score(predictions[name]).mean_dice
        size = model_file.save(model, folder / f"{name}.hedge")
        first = first or dice
        gain = f"{dice / first - 1:+.1%}" if name != "DF" and first else ""
        say(
            f"{name:<8} {about[name]:<32} {dice:>9.3f} {gain:>7} {seconds[name]:>7.1f} s {each:>8.2f} s "
            f"{size / 1e6:>5.2f} MB"
        )
    return predictions


def _report(kind: str, models: dict[str, Any], test: LabelledSet, seconds: dict[str, float], folder: Path) -> None:
    doing = {"DF": "growing the stack", "ConvNet": "refining the network", "MB2": "mapping it back"}
    write_report(
        folder / "report.html",
        models,
        test.pictures(),
        [test.truth(i) for i in range(len(test))],
        title=f"Hedgerow's demo: {kind}",
        about=f"Trained on {N_TRAIN} images and tested on {N_TEST} others, all drawn by the built-in generator.",
        background=BACKGROUND_CLASSES[kind],
        class_names=dict(enumerate(synthetic.CLASS_NAMES[kind])),
        timings={doing[name]: value for name, value in seconds.items()},
    )
