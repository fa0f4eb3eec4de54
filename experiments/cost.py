"""What a model costs on a small board: one thread, plain C, and operations that can be counted without the board.

The paper says that forests need "much less computation" than the network that they were mapped to. CPU seconds depend
on the machine. The instructions of the compiled C code and the operations of the network's definition do not, and
energy follows them closely on processors without vector units.
"""

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench import Bench, Row
from hedgerow.errors import InputError
from hedgerow.export.c import COMPILE, export_c
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import level_input
from hedgerow.forest.walk import reached_leaves, run_level
from hedgerow.images.regions import Region
from hedgerow.io.model_file import load
from hedgerow.kernels.wiring import wire
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.tiling import predict_indices
from hedgerow.threads import threads

N_IMAGES = 5  # test images, evenly chosen
COUNTED_SIDE = 48  # of the corner whose instructions are counted, since counting is slow
MODELS = (("paper", ("DF", "ConvNet", "MB2")), ("own", ("DF", "ConvNet", "MB2", "soft")))
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(int count, char **sizes) {
    int height = atoi(sizes[1]), width = atoi(sizes[2]), runs = atoi(sizes[3]), i;
    float *image = malloc(sizeof(float) * CHANNELS * height * width);
    model_label *labels = malloc(sizeof(model_label) * height * width);
    void *room = malloc(model_workspace(height, width));
    if (count < 4 || fread(image, sizeof(float), CHANNELS * height * width, stdin) == 0) return 1;
    for (i = 0; i < runs; i++) if (model_predict(image, height, width, labels, NULL, room)) return 1;
    return fwrite(labels, sizeof *labels, height * width, stdout) == 0;
}
"""


def cost(bench: Bench) -> list[Row]:
    """Cost of the models of the parts `paper` and `own`: a row each."""
    rows = list[Row]()
    for part, names in MODELS:
        for name in names:
            path = bench.model_path(part, name)
            if not path.exists():
                raise InputError(f"the part cost needs the models of the part {part}; run that part too.")
            bench.progress(f"cost of {name} ({part})", len(rows), sum(len(some) for _, some in MODELS))
            rows.append(_row(bench, f"{name}, {part}", load(path)))
    return rows


def _row(bench: Bench, name: str, model: Any) -> Row:
    test = bench.test.images
    planes = [test[i * len(test) // N_IMAGES].planes for i in range(min(N_IMAGES, len(test)))]
    scores = bench.test.score(bench.predicted(name, model))
    with threads(1):
        predict_indices(model, planes[0])  # compiles the kernels
        cpu = time.process_time()
        maps = [predict_indices(model, image) for image in planes]
        cpu = time.process_time() - cpu
    n_pixels = sum(labels.size for labels in maps)
    row: Row = {"part": "cost", "model": name, "seed": bench.seed, "device": "cpu", "mean_dice": scores.mean_dice}
    row["us_a_pixel"] = 1e6 * cpu / n_pixels
    is_soft = isinstance(model, ForestStack) and any(forest.sharpness is not None for forest in model.levels)
    if not is_soft:  # how many branches a soft forest enters depends on the pixel
        row["operations"] = float(np.mean([operations(model, image) for image in planes[:1]]))
    if isinstance(model, ForestStack):
        row |= in_c(model, planes, maps)
    return row


def operations(model: ForestStack | StackNet, planes: np.ndarray) -> float:
    """Multiplications, additions, comparisons and activations per pixel, without the features.

    A forest multiplies and adds along one path per tree and adds the votes of one leaf; the network computes all
    neurons: 2 per probe and 1 for the activation of a split, 2 per edge of a leaf's path and 1 for its activation, and
    2 per leaf and class.
    """
    total = 0.0
    for number in range(model.n_levels):
        forest = model.stack.levels[number] if isinstance(model, StackNet) else model.levels[number]
        wiring = wire(forest.root, forest.left_child)
        n_classes, n_probes = forest.votes.shape[1], forest.weight.shape[1]
        if isinstance(model, StackNet):
            total += wiring.n_splits * (2 * n_probes + 1) + 2 * len(wiring.edge_leaf) + wiring.n_leaves
            total += 2 * wiring.n_leaves * n_classes
        else:
            whole = Region.whole(planes.shape[1:])
            leaves = reached_leaves(
                forest, level_input(model, lambda *given: run_level(model, *given), planes, whole, number)
            )
            length = np.zeros(forest.n_leaves)
            length[forest.leaf_index[wiring.node_leaf]] = wiring.path_length
            total += length[leaves].mean() * wiring.n_trees * 2 * n_probes + wiring.n_trees * n_classes
        total += 2 * n_classes  # the sum over classes, and the division by it
    return total


def in_c(model: ForestStack, planes: list[np.ndarray], maps: list[np.ndarray]) -> dict[str, float]:
    """Microseconds and instructions per pixel, and size, of the exported code; nothing without a compiler.

    Raises InputError if the code labels a pixel differently from `maps`.
    """
    if shutil.which("cc") is None:
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_c(model, folder / "model.c")
        (folder / "main.c").write_text(MAIN.replace("CHANNELS", str(len(planes[0]))), encoding="utf-8")
        command = [*COMPILE.split(), "main.c", "model.c", "-lm", "-o", "segment"]
        subprocess.run(command, cwd=folder, check=True)
        measured: dict[str, float] = {"c_bytes": float((folder / "model.c").stat().st_size)}
        classes = np.asarray(model.classes)
        once = [_run(folder, ["./segment"], image, 0)[0] for image in planes]
        spent = 0.0
        for image, labels, empty in zip(planes, maps, once, strict=True):
            seconds, output, _ = _run(folder, ["./segment"], image, 1)
            spent += seconds - empty
            written = np.frombuffer(output, np.uint8 if len(output) == labels.size else np.int32)
            if (written.reshape(labels.shape) != classes[labels]).any():
                raise InputError(f"the C code of {model!r} labels pixels differently; run the tests of the export.")
        measured["c_us_a_pixel"] = 1e6 * spent / sum(labels.size for labels in maps)
        if shutil.which("valgrind") is not None:
            corner = np.ascontiguousarray(planes[0][:, :COUNTED_SIDE, :COUNTED_SIDE])
            count = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "./segment"]
            counted = [
                int(re.findall(r"Collected : (\d+)", _run(folder, count, corner, runs)[2])[0]) for runs in (0, 1)
            ]
            measured["c_instructions"] = (counted[1] - counted[0]) / corner[0].size
    return measured


def _run(folder: Path, command: list[str], image: np.ndarray, runs: int) -> tuple[float, bytes, str]:
    """CPU seconds, output and messages of the program, which predicts the image so many times."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    sizes = [str(number) for number in (*image.shape[1:], runs)]
    done = subprocess.run(
        [*command, *sizes], cwd=folder, input=image.astype(np.float32).tobytes(), capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    return after - before, done.stdout, done.stderr.decode()
