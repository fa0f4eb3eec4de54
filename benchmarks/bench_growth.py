"""How CPU seconds and memory grow as one thing grows and the rest stays: pixels, images, trees, depth, classes.

A stack of three levels learns from images and names the pixels of one more: filters, context and held-out predictions
included. Beside it one forest on channels that are given (our own filter bank's), ours and scikit-learn's doing the
same work; scikit-learn has its samples laid out as rows before the clock starts. Every job has a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from growth_figure import Curve, Panel, draw
from hedgerow.config import ContextConfig, SamplingConfig, StackConfig
from hedgerow.features.registry import fit_features
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.progress import silent
from hedgerow.threads import set_threads
from measure import (
    DRAWN,
    THREADS,
    Outcome,
    exponent,
    in_fresh_process,
    installed,
    measure,
    require,
    seconds,
    table,
)

TITLE = "How cost grows"
FIGURE = DRAWN / "growth.png"
STACK, FOREST, PEER = "hedgerow, stack of 3", "hedgerow, one forest", "scikit-learn, one forest"
PATCH, NOISE, SIGMAS = 16, 0.5, (1.0, 4.0)
LABELLED_PART, UNLABELLED, MIN_SPLIT = 0.1, 255, 25
LEAST_MB = 1.0
"""Smaller values depend on the allocator: they are shown as this value and ignored in exponents."""
ACCURACY_SLACK = {False: 0.05, True: 0.2}
"""True: in the small run, whose few patches make the stack's context misleading."""


@dataclass(frozen=True)
class Job:
    """Square images of `side` pixels to learn from, and the forests to grow."""

    side: int
    images: int
    trees: int
    depth: int
    classes: int


@dataclass(frozen=True)
class Quantity:
    """What grows: a field of a Job and its values, and the name and sizes to show."""

    field: str
    values: tuple[int, ...]
    name: str
    size: Callable[[int], int] = int


@dataclass(frozen=True)
class Plan:
    base: Job
    quantities: tuple[Quantity, ...]

    def jobs(self, quantity: Quantity) -> list[Job]:
        return [replace(self.base, **{quantity.field: value}) for value in quantity.values]


def _plan(base: Job, **values: tuple[int, ...]) -> Plan:
    names = {"side": "pixels of an image", "images": "images", "trees": "trees", "depth": "depth", "classes": "classes"}
    sizes = {"side": lambda side: side * side}
    return Plan(base, tuple(Quantity(f, values[f], name, sizes.get(f, int)) for f, name in names.items()))


PLANS = {
    False: _plan(
        Job(side=256, images=4, trees=8, depth=8, classes=4),
        side=(128, 256, 512, 1024),
        images=(1, 4, 16, 64),
        trees=(2, 8, 32, 128),
        depth=(2, 4, 8, 16),
        classes=(2, 4, 8, 16, 32),
    ),
    True: _plan(
        Job(side=64, images=4, trees=4, depth=4, classes=2),
        side=(64, 128),
        images=(4, 8),
        trees=(4, 8),
        depth=(4, 8),
        classes=(2, 4),
    ),
}


@dataclass(frozen=True)
class Scene:
    """images: (side,side) float32, the last one new; labels: of the others, mostly unlabelled; truth: of the last."""

    images: list[np.ndarray]
    labels: list[np.ndarray]
    truth: np.ndarray

    @classmethod
    def drawn(cls, job: Job) -> Scene:
        """Square patches of random classes, each of its brightness, and white noise over all."""
        rng = np.random.default_rng(0)
        images, labels = [], []
        for _ in range(job.images + 1):
            patches = rng.integers(0, job.classes, (job.side // PATCH, job.side // PATCH), np.uint8)
            truth = patches.repeat(PATCH, axis=0).repeat(PATCH, axis=1)
            noise = NOISE * rng.standard_normal(truth.shape, np.float32)
            images.append(truth / np.float32(job.classes) + noise)
            labels.append(np.where(rng.random(truth.shape) < LABELLED_PART, truth, np.uint8(UNLABELLED)))
        return cls(images, labels[:-1], truth)

    @property
    def channels(self) -> list[np.ndarray]:
        """(F,side,side) of each image, by our filter bank."""
        bank, _ = fit_features([image[None] for image in self.images[:-1]], StackConfig(sigmas=SIGMAS))
        return [bank.compute(image[None]) for image in self.images]

    def accuracy(self, predicted: np.ndarray) -> float:
        return float((predicted == self.truth).mean())


def stack_config(job: Job) -> StackConfig:
    return StackConfig(
        n_trees=job.trees,
        max_depth=job.depth,
        min_split=MIN_SPLIT,
        sigmas=SIGMAS,
        sampling=SamplingConfig(step=1, max_samples=10**9),
    )


def forest_config(job: Job) -> StackConfig:
    """One forest without context, on the channels that are given."""
    plain = ContextConfig(window=1)
    return replace(stack_config(job), n_levels=1, held_out="none", features="channels", context=plain)


def run_stack(job: Job) -> Outcome:
    scene = Scene.drawn(job)
    return _fit_and_predict(scene, scene.images, stack_config(job))


def run_forest(job: Job) -> Outcome:
    scene = Scene.drawn(job)
    return _fit_and_predict(scene, scene.channels, forest_config(job))


def _fit_and_predict(scene: Scene, images: list[np.ndarray], config: StackConfig) -> Outcome:
    set_threads(THREADS)
    few = Scene.drawn(Job(side=64, images=2, trees=1, depth=2, classes=2))
    given = few.images if config.features == "bank" else few.channels
    compiled = fit_stack(given[:-1], few.labels, replace(config, n_trees=2), progress=silent)
    compiled.predict(given[-1], progress=silent)
    train, stack = measure(lambda: fit_stack(images[:-1], scene.labels, config, progress=silent))
    predict, predicted = measure(lambda: stack.predict(images[-1], progress=silent), 3)
    return Outcome(train, predict, scene.accuracy(predicted))


def run_peer(job: Job) -> Outcome:
    from sklearn.ensemble import RandomForestClassifier

    set_threads(THREADS)
    scene = Scene.drawn(job)
    *learned, new = [np.moveaxis(channels, 0, -1) for channels in scene.channels]
    told = [label != UNLABELLED for label in scene.labels]
    rows = np.concatenate([image[where] for image, where in zip(learned, told, strict=True)])
    targets = np.concatenate([label[where] for label, where in zip(scene.labels, told, strict=True)])
    pixels = np.ascontiguousarray(new.reshape(-1, new.shape[-1]))
    del learned

    def grow(n_samples: int | None = None) -> RandomForestClassifier:
        settings = {"max_depth": job.depth, "min_samples_split": MIN_SPLIT, "random_state": 0, "n_jobs": THREADS}
        return RandomForestClassifier(job.trees, **settings).fit(rows[:n_samples], targets[:n_samples])

    grow(100).predict(pixels[:100])
    train, forest = measure(grow)
    predict, predicted = measure(lambda: forest.predict(pixels), 3)
    return Outcome(train, predict, scene.accuracy(predicted.reshape(scene.truth.shape)))


CONTENDERS = {STACK: run_stack, FOREST: run_forest, PEER: run_peer}
Outcomes = dict[tuple[str, Job], Outcome]


def check_accuracy(outcomes: Outcomes, job: Job, slack: float) -> None:
    """Raise CheckFailed unless all are equally good, including the stack: random patches have no context to learn."""
    accuracy_of = {name: outcomes[name, job].accuracy for name in CONTENDERS if (name, job) in outcomes}
    accuracies = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in accuracy_of.items())
    worst = min(accuracy_of[STACK], accuracy_of[FOREST])
    chance = 1 / job.classes
    require(worst > chance and worst >= max(accuracy_of.values()) - slack, f"accuracies at {job}: {accuracies}.")


def megabytes(value: float) -> str:
    return f"{value:.1f}" if value > LEAST_MB else f"< {LEAST_MB:g}"


ROWS = {
    "training, CPU s": lambda outcome: outcome.train.cpu,
    "prediction, CPU s": lambda outcome: outcome.predict.cpu,
    "training, added MB": lambda outcome: max(outcome.train.added, LEAST_MB),
    "prediction, added MB": lambda outcome: max(outcome.predict.added, LEAST_MB),
}
MEMORY_ROWS = [row for row in ROWS if row.endswith("MB")]


def panels_of(plan: Plan, outcomes: Outcomes) -> list[Panel]:
    """The costs of every contender for each quantity; a contender that is not installed has none."""
    panels = []
    for quantity in plan.quantities:
        sizes = [quantity.size(value) for value in quantity.values]
        curves = []
        for row, cost_of in ROWS.items():
            for name in CONTENDERS:
                found = [outcomes.get((name, job)) for job in plan.jobs(quantity)]
                curves.append(Curve(row, name, [cost_of(outcome) for outcome in found if outcome]))
        panels.append(Panel(quantity.name, sizes, curves))
    return panels


def growth_table(panel: Panel) -> str:
    """Contenders and costs down, sizes across, the fitted exponent last."""
    rows = []
    for curve in panel.curves:
        label = f"{curve.contender}: {curve.row}"
        if not curve.costs:
            rows.append([label, "not installed", *["-"] * len(panel.sizes)])
            continue
        show, least = (megabytes, LEAST_MB) if curve.row in MEMORY_ROWS else (seconds, 0.0)
        power = exponent(panel.sizes, curve.costs, least)
        rows.append([label, *map(show, curve.costs), "-" if math.isnan(power) else f"{power:.2f}"])
    return table([panel.name, *(f"{size:,}" for size in panel.sizes), "exponent"], rows)


def measured(plan: Plan, names: Sequence[str], slack: float) -> Outcomes:
    outcomes: Outcomes = {}
    for job in dict.fromkeys(job for quantity in plan.quantities for job in plan.jobs(quantity)):
        outcomes |= {(name, job): in_fresh_process(CONTENDERS[name], job) for name in names}
        check_accuracy(outcomes, job, slack)
    return outcomes


def run(small: bool = False) -> str:
    plan = PLANS[small]
    FIGURE.unlink(missing_ok=True)  # an older run's is not this one's
    names = [name for name in CONTENDERS if name != PEER or installed("sklearn")]
    panels = panels_of(plan, measured(plan, names, ACCURACY_SLACK[small]))
    base = plan.base
    lines = [
        f"Unless stated otherwise: {base.images} images of {base.side} x {base.side}, {LABELLED_PART:.0%} of the "
        f"pixels labelled, {base.trees} trees of depth {base.depth}, {base.classes} classes, {THREADS} threads. The "
        "stack starts from images and reads context. The two forests get the same channels and do the same work; "
        "scikit-learn's samples are laid out as rows beforehand, which is not counted. Training runs once, the "
        "prediction of one image three times.",
        "",
        "The exponent is that of the best-fitting power law: at 1, the cost grows in proportion; at 0, it stays "
        "constant. Any fixed cost before the first pixel lowers the exponent.",
    ]
    if installed("matplotlib"):
        draw(panels, list(ROWS), list(CONTENDERS), FIGURE)
        lines += ["", f"![CPU seconds and memory against pixels, images, trees, depth and classes]({FIGURE.name})"]
    else:
        lines += ["", "No figure: matplotlib is not installed."]
    for panel in panels:
        lines += ["", growth_table(panel)]
    return "\n".join(lines)
