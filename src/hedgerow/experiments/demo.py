"""The demo: the whole pipeline on built-in images, and what each step gains on images that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import extras, synthetic
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.files import make_folder
from hedgerow.forest.autocontext import fit_stack
from hedgerow.images.classes import class_table
from hedgerow.images.metrics import scores
from hedgerow.images.pictures import label_picture, save_sheet
from hedgerow.io import model_file
from hedgerow.progress import silent
from hedgerow.report.figures import input_picture
from hedgerow.synthetic import write_sample

CONFIGS = {"somites": StackConfig(), "bodies": StackConfig.kinect(held_out="folds")}
STEPS = {"somites": 120, "bodies": 120}  # fewer than the default, for people who watch
BACKGROUND = {"somites": 0, "bodies": 19}
N_TRAIN, N_TEST = 16, 8
SHOWN = 3  # test images in the picture


@dataclass(frozen=True)
class Images:
    """Drawn images (H,W) with labels (H,W): to learn from, and to test on."""

    kind: str
    images: list[np.ndarray]
    labels: list[np.ndarray]
    test_images: list[np.ndarray]
    test_labels: list[np.ndarray]


def run_demo(kind: str, folder: Path, say: Callable[[str], None]) -> None:
    """Train on built-in images of one kind, test on others; write images, models, pictures and the report."""
    make_folder(folder)
    make = getattr(synthetic, kind)
    data = Images(kind, *make(n_images=N_TRAIN, seed=0), *make(n_images=N_TEST, seed=1))
    write_sample(kind, folder, N_TRAIN, 0)
    n_classes = len(class_table(data.labels).values)
    say(f"{N_TRAIN} images of {n_classes} classes to learn from, {N_TEST} others to test on: {folder / 'images'}")

    start = time.perf_counter()
    stack = fit_stack(data.images, data.labels, CONFIGS[kind])
    seconds = {"DF": time.perf_counter() - start}
    values = np.array(stack.classes)
    levels = [stack.level_outputs(image, progress=silent) for image in data.test_images]
    found = {f"level {k + 1}": [values[output[k].argmax(axis=0)] for output in levels] for k in range(stack.n_levels)}
    say("\nmean Dice on the test images, level after level")
    for name, maps in found.items():
        say(f"{name:<10} {scores(data.test_labels, maps, stack.classes).mean_dice:.3f}")
    models: dict[str, Any] = {"DF": stack}
    if extras.is_there("torch"):
        models |= _refined(stack, data, seconds, say)
    else:
        say("\nPyTorch is not installed, so the stack is not refined: pip install 'hedgerow[net]' for all of the demo.")
    found |= _table(models, data, seconds, folder, say)
    _pictures(found, data, stack.classes, folder)
    written = ["comparison.png"]
    if extras.is_there("torch") and extras.is_there("jinja2"):
        _report(models, data, seconds, folder)
        written.append("report.html")
    say(f"\nlook at: {', '.join(str(folder / name) for name in written)}")
    last = folder / f"{list(models)[-1]}.hedge"
    say(f"next: hedgerow predict {last} {folder / 'images'} -o segmented/")


def _refined(stack: Any, data: Images, seconds: dict[str, float], say: Callable[[str], None]) -> dict[str, Any]:
    """The network of the stack, refined, and the forests it is mapped back to."""
    from hedgerow.network.mapping import to_convnet, to_forest
    from hedgerow.refinement.loop import refine

    start = time.perf_counter()
    config = RefineConfig(n_steps=STEPS[data.kind], held_out=0.0)
    net = to_convnet(stack)
    layers = net.layers()
    n_weights = sum(layer.weights for layer in layers)
    say(f"\nthe same as a network: {len(layers) - 1} hidden layers, {n_weights:,} weights; now it is refined")
    net = refine(net, data.images, data.labels, config)
    seconds["ConvNet"] = time.perf_counter() - start
    start = time.perf_counter()
    back = to_forest(net, data.images, "leaf_mean")
    seconds["MB2"] = time.perf_counter() - start
    return {"ConvNet": net, "MB2": back}


def _table(
    models: dict[str, Any], data: Images, seconds: dict[str, float], folder: Path, say: Callable[[str], None]
) -> dict[str, list[np.ndarray]]:
    """Print a line a model, save the models, and return what they predict of the test images."""
    about = {"DF": "the stack of forests", "ConvNet": "the same as a network, refined", "MB2": "forests again"}
    say("\n                                          mean Dice    gain   made in   an image    model")
    found, first = {}, 0.0
    for name, model in models.items():
        start = time.perf_counter()
        found[name] = [model.predict(image, progress=silent) for image in data.test_images]
        each = (time.perf_counter() - start) / N_TEST
        dice = scores(data.test_labels, found[name], model.classes).mean_dice
        size = model_file.save(model, folder / f"{name}.hedge")
        first = first or dice
        gain = f"{dice / first - 1:+.1%}" if name != "DF" and first else ""
        say(
            f"{name:<8} {about[name]:<32} {dice:>9.3f} {gain:>7} {seconds[name]:>7.1f} s {each:>8.2f} s "
            f"{size / 1e6:>5.2f} MB"
        )
    return found


def _pictures(found: dict[str, list[np.ndarray]], data: Images, classes: tuple[int, ...], folder: Path) -> None:
    """One sheet: image, truth, every level, every model; the last level of the stack is its DF."""
    columns = [name for name in found if name != "DF"]
    rows = []
    for i in range(SHOWN):
        maps = [data.test_labels[i], *(found[name][i] for name in columns)]
        picture = input_picture(data.test_images[i], "depth" if data.kind == "bodies" else "bank")
        rows.append([picture, *(label_picture(m, classes, BACKGROUND[data.kind]) for m in maps)])
    save_sheet(folder / "comparison.png", ["image", "truth", *columns], rows)


def _report(models: dict[str, Any], data: Images, seconds: dict[str, float], folder: Path) -> None:
    from hedgerow.report.page import write_report

    doing = {"DF": "growing the stack", "ConvNet": "refining the network", "MB2": "mapping it back"}
    write_report(
        folder / "report.html",
        models,
        data.test_images,
        data.test_labels,
        title=f"Hedgerow's demo: {data.kind}",
        about=f"Trained on {N_TRAIN} drawn images, tested on {N_TEST} others, all made by the built-in generator.",
        background=BACKGROUND[data.kind],
        class_names=dict(enumerate(synthetic.CLASS_NAMES[data.kind])),
        timings={doing[name]: value for name, value in seconds.items()},
    )
