"""One level of the network, forward and backward, beside PyTorch; then one step of refinement of three levels.

16 full trees of depth 12, 22 classes, soft splits, on every ninth row and column of an 800 x 950 image; 49 features
and the 22 outputs of the level before, read at offsets up to 64 pixels. Nothing is left out (tolerance 0). PyTorch
cannot hold all the pixels, so it is given some of them, and its time and memory are scaled; the tables say so.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.threads import set_threads
from measure import THREADS, Cost, in_fresh_process, installed, measure, require, seconds, table, verdict

if TYPE_CHECKING:
    from hedgerow.network.layout import Grid, Source
    from net_contenders import Contender, Level

TITLE = "Network"
N_FEATURES, N_CLASSES, REACH, STEP = 49, 22, 64, 9
SHARPNESS = 3.0
"""On channels of standard deviation 1: a pixel belongs to many leaves of every tree."""
SHARP, TRAINING_TOLERANCE = 100.0, 1e-4
OURS, SHARP_NAME = "hedgerow", f"hedgerow, OTHER SETTING: sharpness {SHARP:g}, tolerance {TRAINING_TOLERANCE:g}"
FEWER_PIXELS = "PyTorch {}"
PROMISED = {"gathers": 15, "sparse": 3, "memory": 20, "step": 12.0}


@dataclass(frozen=True)
class Size:
    """shape: of the image; n_slice: pixels that PyTorch is given; n_matrix: rows of the product for the rate."""

    shape: tuple[int, int]
    n_trees: int
    depth: int
    n_slice: int
    n_matrix: int
    repeats: int

    @property
    def lattice(self) -> tuple[int, int]:
        return -(-self.shape[0] // STEP), -(-self.shape[1] // STEP)

    @property
    def n_pixels(self) -> int:
        return self.lattice[0] * self.lattice[1]


SIZES = {False: Size((800, 950), 16, 12, 512, 2048, 2), True: Size((150, 200), 2, 6, 64, 256, 1)}


@dataclass(frozen=True)
class Outcome:
    """What one contender needed for so many pixels; `both` is the forward pass and the way back."""

    n_pixels: int
    forward: Cost
    both: Cost


@dataclass(frozen=True)
class Work:
    """Floating-point operations for one pixel, a multiply-add counting as two."""

    forward: float
    backward: float


def needed_work(n_splits: int, n_leaves: int, n_classes: int, before_part: float) -> Work:
    """The arithmetic of one level for one pixel, if every node is computed once and no path is walked twice.

    A split, forward: 2 for the weighted probe and its threshold; 25 for the pair of branch probabilities (exponential:
    3 to find the power of two, 4 to remove it, 10 for five terms, 4 for the others, 1 to scale; 3 for 1 / (1 + e) and
    its complement); 2 for what its children carry. A leaf, forward: a multiply-add per class.
    Backward, the splits are computed again, since they cannot be stored. Then a leaf: a multiply-add per class for its
    own gradient, another for its votes', 1 to pass it on. A split: 1 to sum over its children, 4 for its input's
    gradient, 1 for its threshold's, 2 for its weight's, and 2 for that of the value it read, if that has one.
    """
    splits, votes = n_splits * (2 + 25 + 2), 2 * n_leaves * n_classes
    back = n_leaves + n_splits * (1 + 4 + 1 + 2 + 2 * before_part)
    return Work(splits + votes, splits + 2 * votes + back)


def make_channels(folder: Path, size: Size) -> None:
    """Smoothed noise of standard deviation 1: features (F,H,W), and outputs of a level before (C,h,w)."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)

    def smooth(n: int, shape: tuple[int, int], sigma: float) -> np.ndarray:
        planes = np.stack([gaussian_filter(rng.standard_normal(shape, np.float32), sigma) for _ in range(n)])
        return planes / planes.std(axis=(1, 2), keepdims=True)

    np.save(folder / "features.npy", smooth(N_FEATURES, size.shape, STEP))
    np.save(folder / "before.npy", smooth(N_CLASSES, size.lattice, 1.5))


def load_source(folder: Path, size: Size) -> tuple[Source, Grid]:
    import torch

    from hedgerow.network.layout import Source, lattice

    set_threads(THREADS)
    torch.set_num_threads(THREADS)
    features, before = (torch.from_numpy(np.load(folder / f"{name}.npy"))[:, None] for name in ("features", "before"))
    grid = lattice(*size.shape, STEP)
    return Source(features, before, grid), grid


def load_level(folder: Path, size: Size, sharpness: float = SHARPNESS, pixels: tuple[int, int] | None = None) -> Level:
    """On the whole lattice, or on a corner of it."""
    from hedgerow.network.layout import Grid
    from net_contenders import Level, full_forest

    source, grid = load_source(folder, size)
    if pixels:
        grid = Grid(0, 0, *pixels, STEP)
    forest = full_forest(1, size.n_trees, size.depth, N_FEATURES + N_CLASSES, N_CLASSES, REACH)
    return Level.of(forest, source, grid, sharpness)


def check(folder: Path, size: Size) -> str:
    """Every contender on a few pixels, value and gradients, beside the definition in float64.

    Allowed is twice the error (gradients: three times) that the definition makes in float32.
    """
    import torch

    from net_contenders import FORMS, Definition, InPyTorch, Ours

    level = load_level(folder, size, pixels=(3, 5))
    exact = results(Definition(level.to(torch.float64)))
    plain = {name: error(result, exact[name]) for name, result in results(Definition(level)).items()}
    contenders = {OURS: Ours(level)} | {form: InPyTorch(level, form, 15) for form in FORMS}
    worst = 0.0
    for contender, computed in contenders.items():
        for name, result in results(computed).items():
            found, allowed = error(result, exact[name]), (2 if name == "scores" else 3) * plain[name]
            require(found <= allowed, f"{contender}: {name} are off by {found:.2g}, allowed is {allowed:.2g}.")
            worst = max(worst, found / allowed)
    return (
        f"Checked on 15 pixels: scores and all gradients of each contender are those of the definition in float64, "
        f"to {worst:.2f} of what is allowed (scores twice, gradients three times the error of the definition in "
        f"float32: {', '.join(f'{name} {value:.0e}' for name, value in plain.items())})."
    )


def results(contender: Contender) -> dict[str, np.ndarray]:
    scores = contender.forward().detach()
    contender.forward_and_backward()
    return {name: tensor.double().numpy() for name, tensor in {"scores": scores, **contender.gradients()}.items()}


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def run_ours(folder: Path, size: Size, sharpness: float, tolerance: float) -> tuple[Outcome, Work]:
    from net_contenders import Ours

    Ours(load_level(folder, size, sharpness, pixels=(1, 1)), tolerance).forward_and_backward()  # compiles
    contender = Ours(load_level(folder, size, sharpness), tolerance)
    level = contender.level
    before_part = float((level.reads.place >= level.reads.carried).mean())
    work = needed_work(level.wiring.n_splits, level.wiring.n_leaves, N_CLASSES, before_part)
    return timed(contender, size.n_pixels, size.repeats), work


def run_in_pytorch(folder: Path, size: Size, form: str) -> Outcome:
    from net_contenders import InPyTorch

    level = load_level(folder, size)
    InPyTorch(level, form, 4).forward_and_backward()
    return timed(InPyTorch(level, form, size.n_slice), size.n_slice, size.repeats)


def timed(contender: Contender, n_pixels: int, repeats: int) -> Outcome:
    forward = measure(contender.forward, repeats)[0]
    return Outcome(n_pixels, forward, measure(contender.forward_and_backward, repeats)[0])


def run_matrix_product(size: Size) -> Cost:
    """Seconds for 1e9 operations of a float32 matrix product."""
    import torch

    torch.set_num_threads(THREADS)
    left, right = torch.rand(2, size.n_matrix, size.n_matrix)
    cost = measure(lambda: torch.mm(left, right), 10)[0]
    billions = 2 * size.n_matrix**3 / 1e9
    return Cost(cost.wall / billions, cost.cpu / billions, cost.added, cost.peak)


def run_step(folder: Path, size: Size) -> Cost:
    """Forward through three levels, cross entropy, all gradients, one step of Adam."""
    import torch

    from hedgerow.config import Sharpness
    from hedgerow.network.layout import Source
    from hedgerow.network.mapping import to_convnet
    from hedgerow.network.stacknet import StackNet
    from net_contenders import full_forest, stack_of

    source, grid = load_source(folder, size)
    source = Source(source.features)
    target = torch.from_numpy(np.random.default_rng(2).integers(0, N_CLASSES, (1, *grid.size)))

    def network(n_trees: int, depth: int) -> StackNet:
        channels = [N_FEATURES, N_FEATURES + N_CLASSES, N_FEATURES + N_CLASSES]
        forests = [full_forest(k, n_trees, depth, n, N_CLASSES, REACH) for k, n in enumerate(channels)]
        return to_convnet(stack_of(forests, N_FEATURES), "soft", Sharpness(SHARPNESS, 1.0, 1.0))

    def step(net: StackNet, optimiser: torch.optim.Optimizer) -> float:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(source, [grid] * 3)[-1][None], target)
        loss.backward()
        optimiser.step()
        return loss.item()

    for net in (network(1, 2), network(size.n_trees, size.depth)):  # the first compiles
        optimiser = torch.optim.Adam(net.parameters())
        losses: list[float] = []
        cost = measure(lambda net=net, opt=optimiser, losses=losses: losses.append(step(net, opt)), size.repeats)[0]
    losses.append(step(net, optimiser))
    require(bool(np.isfinite(losses).all()) and losses[-1] < losses[0], f"steps do not lower the loss: {losses}.")
    return cost


def run(small: bool = False) -> str:
    if not installed("torch"):
        return "Not run: PyTorch is not installed."
    size = SIZES[small]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        in_fresh_process(make_channels, folder, size)
        checked = in_fresh_process(check, folder, size)
        product = in_fresh_process(run_matrix_product, size)
        ours, work = in_fresh_process(run_ours, folder, size, SHARPNESS, 0.0)
        peers = {
            form: in_fresh_process(run_in_pytorch, folder, size, form)
            for form in ("gathers", "embedding bags", "sparse CSR", "sparse COO")
        }
        sharp, _ = in_fresh_process(run_ours, folder, size, SHARP, TRAINING_TOLERANCE)
        step = in_fresh_process(run_step, folder, size)
    return _report(size, checked, {OURS: ours, **peers, SHARP_NAME: sharp}, work, product, step)


def _report(size: Size, checked: str, outcomes: dict[str, Outcome], work: Work, product: Cost, step: Cost) -> str:
    ours, gathers = outcomes[OURS], outcomes["gathers"]
    fastest = min(("sparse CSR", "sparse COO"), key=lambda form: outcomes[form].both.cpu)
    sparse = outcomes[fastest]
    memory = peak_for_all(gathers, size) / ours.both.peak
    return "\n".join(
        [
            f"{size.n_trees} full trees of depth {size.depth}, {N_CLASSES} classes, {size.lattice[0]} x "
            f"{size.lattice[1]} = {size.n_pixels:,} pixels, {N_FEATURES} + {N_CLASSES} channels, {THREADS} threads. "
            f"PyTorch cannot hold all pixels and gets {size.n_slice} of them: values marked ~ are scaled to all "
            "pixels, not measured.",
            "",
            checked,
            "",
            "Forward:",
            "",
            _table({name: (outcome.n_pixels, outcome.forward) for name, outcome in outcomes.items()}, size),
            "",
            "Forward and backward, with gradients of weights, thresholds, votes and the output of the previous level:",
            "",
            _table({name: (outcome.n_pixels, outcome.both) for name, outcome in outcomes.items()}, size),
            "",
            "Arithmetic operations and their rate, compared with a float32 matrix product of "
            f"{size.n_matrix} x {size.n_matrix} by torch.mm:",
            "",
            _rates(ours, work, product),
            "",
            f"One step of refinement (three levels; the first reads {N_FEATURES} channels, the others "
            f"{N_FEATURES + N_CLASSES}; cross-entropy and Adam): {seconds(step.wall)} s wall, {seconds(step.cpu)} s "
            f"CPU, {step.added:.0f} MB added, {step.peak:.0f} MB peak.",
            "",
            verdict("per pixel, against gathers", *_per_pixel(ours, gathers), 1 / PROMISED["gathers"]),
            verdict(f"per pixel, against {fastest}, the faster one", *_per_pixel(ours, sparse), 1 / PROMISED["sparse"]),
            f"- peak memory: gathers take {memory:.0f} times ours (scaled to all pixels); promised at "
            f"least {PROMISED['memory']}: {_kept(memory >= PROMISED['memory'])}.",
            f"- one step: {seconds(step.wall)} s wall; promised at most {PROMISED['step']:g} on two cores: "
            f"{_kept(step.wall <= PROMISED['step'])}.",
        ]
    )


def _kept(kept: bool) -> str:
    return "kept" if kept else "NOT KEPT"


def _per_pixel(ours: Outcome, peer: Outcome) -> tuple[float, float]:
    return ours.both.cpu / ours.n_pixels, peer.both.cpu / peer.n_pixels


def peak_for_all(outcome: Outcome, size: Size) -> float:
    """Megabytes of the whole process, if what the work adds grows with the pixels."""
    cost = outcome.both
    return cost.peak - cost.added + cost.added * size.n_pixels / outcome.n_pixels


def _table(costs: dict[str, tuple[int, Cost]], size: Size) -> str:
    ours = costs[OURS][1].cpu / size.n_pixels
    rows = []
    for name, (n, cost) in costs.items():
        added, scale = f"{cost.added:.0f}", size.n_pixels / n
        rows.append(
            [
                name if name.startswith(OURS) else FEWER_PIXELS.format(name),
                f"{n:,}",
                seconds(cost.wall),
                seconds(cost.cpu),
                f"{cost.wall / n * 1e6:.1f}",
                f"{cost.cpu / n * 1e6:.1f}",
                f"{cost.cpu / n / ours:.2f}",
                added,
                f"{cost.peak:.0f}",
                added if scale == 1 else f"~{cost.added * scale:.0f}",
            ]
        )
    headers = ["contender", "pixels", "wall s", "CPU s", "wall us/pixel", "CPU us/pixel", f"CPU / {OURS}"]
    return table([*headers, "added MB", "peak MB", "added MB, all pixels"], rows)


def _rates(ours: Outcome, work: Work, product: Cost) -> str:
    rows = []
    total = work.forward + work.backward
    for name, cost, operations in (("forward", ours.forward, work.forward), ("forward and backward", ours.both, total)):
        billions = operations * ours.n_pixels / 1e9
        rows.append(
            [
                name,
                f"{operations / 1e6:.2f}",
                f"{billions:.1f}",
                f"{billions / cost.wall:.1f}",
                f"{billions / cost.cpu:.1f}",
                f"{product.cpu * billions / cost.cpu:.1%}",
            ]
        )
    rows.append(["matrix product", "-", "-", f"{1 / product.wall:.1f}", f"{1 / product.cpu:.1f}", "100.0%"])
    headers = ["work", "million per pixel", "billion in all", "GFLOP / wall s", "GFLOP / CPU s"]
    return table([*headers, "part of the product's rate"], rows)
