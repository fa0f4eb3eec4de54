"""A stack exported to ONNX and run by onnxruntime, beside our own prediction of the same image.

StackConfig.zebrafish() (3 levels of 16 trees on a filter bank, 22 classes) grown on a few drawn embryos. Both start
from the image, filters included, and must name every pixel alike.
"""

import tempfile
from pathlib import Path

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.export.onnx_model import export_onnx
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.io import model_file
from hedgerow.progress import silent
from hedgerow.synthetic import somites
from hedgerow.threads import set_threads
from measure import THREADS, Cost, comparison, in_fresh_process, installed, measure, require
from onnx_peer import answer, open_session

TITLE = "A stack as ONNX"
OURS, PEER = "hedgerow", "onnxruntime, exported"


def make_models(folder: Path, n_images: int, size: tuple[int, int]) -> int:
    """Write the stack, its ONNX export if possible, and another image; returns the number of leaves."""
    set_threads(THREADS)
    images, labels = somites(n_images + 1, size)
    stack = fit_stack(images[:-1], labels[:-1], StackConfig.zebrafish(), progress=silent)
    model_file.save(stack, folder / "stack.hedge")
    if installed("onnx"):
        export_onnx(stack, folder / "stack.onnx")
    np.save(folder / "image.npy", images[-1].astype(np.float32))
    return sum(len(forest.votes) for forest in stack.levels)


def run_ours(folder: Path, repeats: int) -> Cost:
    """Our prediction; its labels are stored in the folder, to check those of the other contender."""
    set_threads(THREADS)
    stack, image = model_file.load(folder / "stack.hedge"), np.load(folder / "image.npy")
    stack.predict(image[:64, :64].copy(), progress=silent)  # compiles
    cost, labels = measure(lambda: stack.predict(image, progress=silent), repeats)
    np.save(folder / "labels.npy", labels)
    return cost


def run_onnxruntime(folder: Path, repeats: int) -> Cost:
    path, inputs = folder / "stack.onnx", {"image": np.load(folder / "image.npy")[None]}
    check_labels(answer(path, "labels", inputs), np.load(folder / "labels.npy"))
    session = open_session(path)
    return measure(lambda: session.run(["labels"], inputs), repeats)[0]


def check_labels(labels: np.ndarray, expected: np.ndarray) -> None:
    require(labels.shape == expected.shape, f"onnxruntime's labels are {labels.shape}, ours {expected.shape}.")
    different = int((labels != expected).sum())
    require(different == 0, f"onnxruntime names {different} of {labels.size} pixels otherwise than we do.")


def run(small: bool = False) -> str:
    n_images, size, repeats = (2, (96, 114), 1) if small else (4, (400, 475), 3)
    with tempfile.TemporaryDirectory() as name:
        n_leaves = in_fresh_process(make_models, Path(name), n_images, size)
        costs: dict[str, Cost | None] = {OURS: in_fresh_process(run_ours, Path(name), repeats)}
        has_onnx = installed("onnx", "onnxruntime")
        costs[PEER] = in_fresh_process(run_onnxruntime, Path(name), repeats) if has_onnx else None
    agreed = " Every label agrees." if has_onnx else ""
    return "\n".join(
        [
            f"StackConfig.zebrafish() grown on {n_images} drawn embryos, {n_leaves:,} leaves; labels of one more image "
            f"of {size[0]} x {size[1]}, {THREADS} threads.{agreed}",
            "",
            comparison(costs, PEER),
        ]
    )
