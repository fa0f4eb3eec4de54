"""Variants of the settings of forests; docs/measurements/forests.md has their results."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from experiments.bench import Bench, Row
from hedgerow.config import AugmentConfig, ContextConfig, SamplingConfig, StackConfig

PAPER_GRID = {"sampling": SamplingConfig(step=3, fraction=0.25)}
ROTATED = {"augment": AugmentConfig(copies=2)}
ALL_CHANGES = {"augment": AugmentConfig(copies=2, flip=True, scale=0.15, brightness=0.3, contrast=0.2)}
SMALL_CHANGES = {"augment": AugmentConfig(copies=1, rotation=15.0, scale=0.1, shift=0.1)}
NAIVE, TREES, FOLDS3 = {"held_out": "none"}, {"held_out": "trees"}, {"n_folds": 3}
ZEBRAFISH = StackConfig.zebrafish()

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "naive": NAIVE,
    "trees": TREES,
    "folds3": FOLDS3,
    "folds5": {"n_folds": 5},
    "paper_grid": {**PAPER_GRID, "n_folds": 4},
    "paper_grid_naive": {**PAPER_GRID, **NAIVE},
    "paper_grid_trees": {**PAPER_GRID, **TREES},
    "paper_grid_rotated": {**PAPER_GRID, **ROTATED, **FOLDS3},
    "paper_grid_rotated_naive": {**PAPER_GRID, **ROTATED, **NAIVE},
    "paper_grid_rotated_trees": {**PAPER_GRID, **ROTATED, **TREES},
    "paper_grid_all_changes_naive": {**PAPER_GRID, **ALL_CHANGES, **NAIVE},
    "per_class_naive": {"sampling": SamplingConfig(kind="per_class", per_class=100), **NAIVE},
    "balanced": {"balance": True, **FOLDS3},
    "balanced_naive": {"balance": True, **NAIVE},
    "rotated_copy": {"augment": AugmentConfig(copies=1), **FOLDS3},
    "small_changes_copy": {**SMALL_CHANGES, **FOLDS3},
    "sigma16": {"sigmas": (*StackConfig().sigmas, 16.0), **FOLDS3},
    "window97": {"context": ContextConfig(window=97), **FOLDS3},
    "windows": {"context": ContextConfig(radii=(0, 3)), **FOLDS3},
    "entropy": {"criterion": "entropy", **FOLDS3},
    "search4096": {"search_samples": 4096, **FOLDS3},
    # The paper's settings, with as many trees as the other variants.
    "zebrafish": {one.name: getattr(ZEBRAFISH, one.name) for one in fields(ZEBRAFISH) if one.name != "n_trees"},
}
"""Changes to the experiment's own stack; "zebrafish" has settings for plain images."""


def choice(variant: str) -> Callable[[Bench], list[Row]]:
    """One stack with a variant of the settings, scored after each of its levels."""

    def run(bench: Bench) -> list[Row]:
        part, changes = f"choice-{variant}", VARIANTS[variant]
        config = replace(bench.protocol.own_stack, **changes)
        stack, grown = bench.grown(part if changes else "own", config, bench.train)

        def scored(n_levels: int) -> Row:
            first = replace(stack, levels=stack.levels[:n_levels])
            return bench.score(part, f"level {n_levels}", lambda: (first, grown))

        return [scored(n) for n in range(1, stack.n_levels + 1)]

    return run
