"""Which code runs which model, and on which device."""

from typing import Any

import numpy as np

from hedgerow.forest import walk
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import LevelInput, LevelPlan
from hedgerow.images.regions import Region
from hedgerow.predict.protocol import Model


def run_level(model: Model, level: int, given: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level of a model. Forests are data and run from here; others run
    themselves."""
    if not isinstance(model, ForestStack):
        runs: Any = model
        found: np.ndarray = runs.run_level(level, given)
        return found
    if model.device == "cpu":
        return walk.run_level(model, level, given)
    from hedgerow.predict import gpu_forest  # needs PyTorch

    return gpu_forest.run_level(model, level, given)


def region_outputs(model: Model, planes: np.ndarray, region: Region, plan: LevelPlan | None = None) -> list[np.ndarray]:
    """Class probabilities (C,h,w) after each level in one region of an image (C,H,W).

    plan: of this region, shared with other models that read the same; None: made here
    """
    plan = plan or LevelPlan(model, planes, region, model.n_levels)
    outputs: list[np.ndarray] = []
    for level in range(model.n_levels):
        outputs.append(run_level(model, level, plan.read(level, outputs[-1] if outputs else None)))
    return [plan.output(level, output) for level, output in enumerate(outputs)]
