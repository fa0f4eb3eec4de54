"""The demo: the whole pipeline on built-in images, and what each step gains on images that it has not seen."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import extras, synthetic
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.files import make_folder
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.labelled import LabelledSet, labelled_set
from hedgerow.images.pictures import grey_picture, label_picture, save_sheet
from hedgerow.io import model_file
from hedgerow.jobs.estimates import BEST_MINUTES
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import silent
from hedgerow.report.page import write_report
from hedgerow.synthetic import write_sample

Say = Callable[[str], None]
CONFIGS = {"somites": StackConfig(), "bodies": StackConfig.kinect(held_out="folds")}
STEPS = {"somites": 120, "bodies": 120}  # fewer than the default, for people who watch
BACKGROUND = {"somites": 0, "bodies": 19}
N_TRAIN, N_TEST = 16, 8
SHOWN = 3  # test images in the picture


def run_demo(kind: str, folder: Path, say: Say, *, overwrite: bool = False) -> None:
    """Train on built-in images of one kind, test on others; write images, models, pictures and the report.

    overwrite: also existing files that Hedgerow did not write
    """
    names = ("comparison.png", "report.html", "DF.hedge", "ConvNet.hedge", "MB2.hedge")
    check_overwriting([folder / name for name in names], [], overwrite)
    make_folder(folder)
    draw = getattr(synthetic, kind)
    train = labelled_set(*draw(n_images=N_TRAIN, seed=0))
    test = labelled_set(*draw(n_images=N_TEST, seed=1)).with_classes_of(train)
    write_sample(kind, folder, N_TRAIN, 0, overwrite=overwrite)
    where = folder / "images"
    say(f"{N_TRAIN} images of {train.n_classes} classes to learn from, {N_TEST} others to test on: {where}")

    start = time.perf_counter()
    stack = grow_stack(train, CONFIGS[kind])
    seconds = {"DF": time.perf_counter() - start}
    levels = [stack.level_outputs(picture, progress=silent) for picture in test.pictures()]
    found = {f"level {k + 1}": [output[k].argmax(axis=0) for output in levels] for k in range(stack.n_levels)}
    say("\nmean Dice on the test images, level after level")
    for name, maps in found.items():
        say(f"{name:<10} {test.score(maps).mean_dice:.3f}")
    models: dict[str, Any] = {"DF": stack}
    if extras.is_there("torch"):
        models |= _refined(stack, train, STEPS[kind], seconds, say)
    else:
        say("\nPyTorch is not installed, so the stack is not refined: pip install '.[net]' here for all of the demo.")
    found |= _table(models, test, seconds, folder, say)
    _pictures(found, test, stack, BACKGROUND[kind], folder)
    written = ["comparison.png"]
    if extras.is_there("torch") and extras.is_there("jinja2"):
        _report(kind, models, test, seconds, folder)
        written.append("report.html")
    say(f"\nlook at: {', '.join(str(folder / name) for name in written)}")
    last = folder / f"{list(models)[-1]}.hedge"
    say(f"next: hedgerow predict {last} {where} -o segmented/")
    if extras.is_there("torch"):
        best = f"hedgerow train {where} {folder / 'labels'} -o best.hedge --effort best"
        say(f"for a better model, with convolutional networks, in about {BEST_MINUTES:g} minutes: {best}")


def _refined(
    stack: ForestStack, train: LabelledSet, n_steps: int, seconds: dict[str, float], say: Say
) -> dict[str, Any]:
    """The network of the stack, refined, and the forests it is mapped back to."""
    from hedgerow.network.mapback import to_forest
    from hedgerow.network.mapping import to_convnet
    from hedgerow.refinement.loop import refine_labelled

    start = time.perf_counter()
    net = to_convnet(stack)
    layers = net.layers()
    n_weights = sum(layer.weights for layer in layers)
    say(f"\nthe same as a network: {len(layers) - 1} hidden layers, {n_weights:,} weights; now it is refined")
    net = refine_labelled(net, train, RefineConfig(n_steps=n_steps, held_out=0.0))
    seconds["ConvNet"] = time.perf_counter() - start
    start = time.perf_counter()
    back = to_forest(net, train.pictures(), "leaf_mean")
    seconds["MB2"] = time.perf_counter() - start
    return {"ConvNet": net, "MB2": back}


def _table(
    models: dict[str, Any], test: LabelledSet, seconds: dict[str, float], folder: Path, say: Say
) -> dict[str, list[np.ndarray]]:
    """Print one line per model, save the models, and return what they predict of the test images."""
    about = {"DF": "the stack of forests", "ConvNet": "the same as a network, refined", "MB2": "forests again"}
    say("\n                                          mean Dice    gain   made in  per image    model")
    found, first = {}, 0.0
    for name, model in models.items():
        start = time.perf_counter()
        found[name] = [predict_indices(model, image.planes) for image in test]
        each = (time.perf_counter() - start) / len(test)
        dice = test.score(found[name]).mean_dice
        size = model_file.save(model, folder / f"{name}.hedge")
        first = first or dice
        gain = f"{dice / first - 1:+.1%}" if name != "DF" and first else ""
        say(
            f"{name:<8} {about[name]:<32} {dice:>9.3f} {gain:>7} {seconds[name]:>7.1f} s {each:>8.2f} s "
            f"{size / 1e6:>5.2f} MB"
        )
    return found


def _pictures(
    found: dict[str, list[np.ndarray]], test: LabelledSet, stack: ForestStack, background: int, folder: Path
) -> None:
    """One sheet: image, truth, every level, every model; the last level of the stack is its DF."""
    columns = [name for name in found if name != "DF"]
    rows = []
    for i, image in enumerate(test.images[:SHOWN]):
        maps = [image.target, *(found[name][i] for name in columns)]
        panels = (label_picture(test.values(one), test.classes, background) for one in maps)
        rows.append([grey_picture(image.planes, stack.features.blank), *panels])
    save_sheet(folder / "comparison.png", ["image", "truth", *columns], rows)


def _report(kind: str, models: dict[str, Any], test: LabelledSet, seconds: dict[str, float], folder: Path) -> None:
    doing = {"DF": "growing the stack", "ConvNet": "refining the network", "MB2": "mapping it back"}
    write_report(
        folder / "report.html",
        models,
        test.pictures(),
        [test.truth(i) for i in range(len(test))],
        title=f"Hedgerow's demo: {kind}",
        about=f"Trained on {N_TRAIN} drawn images, tested on {N_TEST} others, all made by the built-in generator.",
        background=BACKGROUND[kind],
        class_names=dict(enumerate(synthetic.CLASS_NAMES[kind])),
        timings={doing[name]: value for name, value in seconds.items()},
    )
