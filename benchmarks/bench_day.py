"""A user's day with colour photographs: train a stack, refine its network, map it back, predict, report.

Ten drawn house fronts of 240 x 320 (`facades`), the default stack and the default refinement, but for the number of its
steps: a step costs the same wherever it stands, so a part of them is run and the rest multiplied. Every job is run in a
process of its own, from files, as the command line does.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hedgerow as hr
from hedgerow.progress import silent
from hedgerow.synthetic import facades
from hedgerow.threads import set_threads
from measure import COST_HEADERS, THREADS, Cost, cost_cells, in_fresh_process, measure, require, seconds, table

TITLE = "A user's day"
STEPS = 300
"""Of a refinement, by default."""
REPORTED = 3
"""Images that are reported on."""


@dataclass(frozen=True)
class Plan:
    """n_images of size (H,W) to train on; steps that are run of a refinement; large: (H,W) of the predicted image."""

    n_images: int = 10
    size: tuple[int, int] = (240, 320)
    steps: int = 30
    large: tuple[int, int] = (330, 540)
    config: hr.StackConfig = hr.StackConfig()
    seed: int = 0

    def images(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return facades(self.n_images, self.size, self.seed)

    def unseen(self) -> tuple[np.ndarray, np.ndarray]:
        """An image and its labels that no job is trained on."""
        images, labels = facades(1, self.large, self.seed + 1)
        return images[0], labels[0]


PLANS = {
    False: Plan(),
    True: Plan(3, (48, 64), 2, (40, 56), hr.StackConfig(n_levels=2, n_trees=3, max_depth=5)),
}
BEFORE = {
    "train": 117.0,
    "refine, 30 steps": 52.7,
    "mapped back, fitted": 70.9,
    "mapped back, soft": 0.248,
    "predict, forest": 0.620,
    "predict, network": 4.241,
    "predict, soft forest": 2.601,
    "predict, fitted forest": 0.518,
    "report, 3 images": 21.3,
}
"""CPU seconds of the same jobs on the same machine, on 2026-11-17, when networks took whole blocks of pixels into every
branch that one of them enters, and laid their planes out anew in new memory at every step."""
BACK = {"fitted": "mapped back, fitted", "soft": "mapped back, soft"}
MODELS = {"stack": "forest", "net": "network", "soft": "soft forest", "fitted": "fitted forest"}


def train(plan: Plan, folder: Path) -> Cost:
    images, labels = plan.images()
    few = [image[::7, ::7] for image in images]
    hr.fit_stack(few, [label[::7, ::7] for label in labels], plan.config, progress=silent)  # compiles
    cost, stack = measure(lambda: hr.fit_stack(images, labels, plan.config, progress=silent))
    hr.save(stack, folder / "stack.hedge")
    return cost


def refine(plan: Plan, folder: Path) -> Cost:
    """With no image held out: what scoring costs is counted as prediction."""
    images, labels = plan.images()
    net = hr.to_convnet(hr.load(folder / "stack.hedge"))
    config = hr.RefineConfig(n_steps=plan.steps, held_out=0.0)
    hr.refine(net, images[:1], labels[:1], hr.RefineConfig(n_steps=1, held_out=0.0), progress=silent)  # compiles
    cost, refined = measure(lambda: hr.refine(net, images, labels, config, progress=silent))
    hr.save(refined, folder / "net.hedge")
    return cost


def back(plan: Plan, folder: Path, method: str) -> Cost:
    images = None if method == "soft" else plan.images()[0]
    net = hr.load(folder / "net.hedge")
    some = None if images is None else [image[::7, ::7] for image in images[:2]]
    hr.to_forest(net, some, method, progress=silent)  # compiles
    cost, stack = measure(lambda: hr.to_forest(net, images, method, progress=silent))
    hr.save(stack, folder / f"{method}.hedge")
    return cost


def predict(plan: Plan, folder: Path, name: str, repeats: int = 3) -> tuple[Cost, np.ndarray]:
    """The cost of one image, and its labels."""
    model, (image, _) = hr.load(folder / f"{name}.hedge"), plan.unseen()
    model.predict(image[::7, ::7], progress=silent)  # compiles
    return measure(lambda: model.predict(image, progress=silent), repeats)


def report(plan: Plan, folder: Path) -> Cost:
    """A page that compares the network with its forests, on images that they were not trained on."""
    images, labels = facades(REPORTED, plan.size, plan.seed + 1)
    nets = {"ConvNet": hr.load(folder / "net.hedge")}
    few = [image[::7, ::7] for image in images], [label[::7, ::7] for label in labels]
    hr.write_report(folder / "small.html", nets, *few, title="Day", progress=silent)  # compiles
    return measure(
        lambda: hr.write_report(folder / "report.html", nets, images, labels, title="Day", progress=silent)
    )[0]  # fmt: skip


def _jobs(plan: Plan, folder: Path) -> tuple[dict[str, Cost], dict[str, np.ndarray]]:
    """Costs of all jobs, by what they are, and what the models say about the unseen image."""

    def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
        return in_fresh_process(_job, function, plan, folder, *arguments)

    costs = {"train": fresh(train), f"refine, {plan.steps} steps": fresh(refine)}
    costs |= {words: fresh(back, method) for method, words in BACK.items()}
    predicted = {}
    for name, words in MODELS.items():
        costs[f"predict, {words}"], predicted[words] = fresh(predict, name)
    costs[f"report, {REPORTED} images"] = fresh(report)
    return costs, predicted


def _job(function: Callable[..., Any], *arguments: Any) -> Any:
    set_threads(THREADS)
    return function(*arguments)


def check(plan: Plan, predicted: dict[str, np.ndarray]) -> None:
    """Raise CheckFailed unless the soft forest equals the network, and all models are better than guessing."""
    _, truth = plan.unseen()
    right = {name: float((labels == truth).mean()) for name, labels in predicted.items()}
    most = np.bincount(truth.ravel()).max() / truth.size
    require(min(right.values()) > most, f"of the unseen image {right} is right; {most:.3f} is one class.")
    differs = float((predicted["network"] != predicted["soft forest"]).mean())
    require(differs < 0.002, f"the soft forest differs from its network at {differs:.4f} of the pixels.")


def run(small: bool = False) -> str:
    plan = PLANS[small]
    with tempfile.TemporaryDirectory() as folder:
        costs, said = _jobs(plan, Path(folder))
    if not small:
        check(plan, said)
    forest, scaled = costs["predict, forest"].cpu, STEPS / plan.steps
    rows = [
        [name, *cost_cells(cost), f"{cost.cpu / forest:.1f}", *([] if small else [seconds(BEFORE[name])])]
        for name, cost in costs.items()
    ]
    headers = ["job", *COST_HEADERS, "CPU / predict, forest", *([] if small else ["CPU s before"])]
    step = costs[f"refine, {plan.steps} steps"]
    net, soft = costs["predict, network"], costs["predict, soft forest"]
    height, width = plan.size
    return "\n".join(
        [
            f"{plan.n_images} drawn house fronts of {height} x {width} in colour, {plan.config.n_levels} levels of "
            f"{plan.config.n_trees} trees, {THREADS} threads; predicted: one image of {plan.large[0]} x "
            f"{plan.large[1]}.",
            "",
            table(headers, rows),
            "",
            f"- {STEPS} steps of refinement would take {scaled * step.cpu:.0f} CPU s ({scaled:.0f} times {plan.steps} "
            "steps).",
            f"- Prediction by the network takes {net.cpu / soft.cpu:.1f} times the CPU seconds of the soft forest, and "
            f"{net.wall / soft.wall:.1f} times the wall seconds.",
        ]
    )
