"""The network on a GPU: three levels forward, and a whole step of refinement, beside the definition in plain PyTorch.

16 full trees of depth 12 per level, 22 classes, soft splits, every pixel of an 800 x 950 image; 30 features and the 22
outputs of the level before, read at offsets up to 64 pixels. Nothing is left out (tolerance 0). The definition cannot
hold all the pixels, so it is given a crop, and both are compared by the pixel, in the same run; the tables say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from measure import installed, require, seconds, table

if TYPE_CHECKING:
    import torch

    from hedgerow.network.layout import Source
    from hedgerow.network.stacknet import StackNet

TITLE = "GPU"
N_FEATURES, N_CLASSES, REACH, N_LEVELS = 30, 22, 64, 3
SHARPNESS = 3.0
PROMISED = {"forward": 0.4, "step": 1.5, "memory": 16.0, "reference": 15.0}


@dataclass(frozen=True)
class Size:
    """shape: of the image; crop: what the definition is given; check: what results are compared on."""

    shape: tuple[int, int]
    crop: tuple[int, int]
    check: tuple[int, int]
    n_trees: int
    depth: int
    repeats: int


SIZES = {False: Size((800, 950), (16, 40), (12, 40), 16, 12, 3), True: Size((40, 50), (16, 20), (9, 17), 2, 5, 1)}


@dataclass(frozen=True)
class Work:
    """What one pass over all levels and pixels takes: split activations, multiply-adds, and bytes at the least."""

    activations: float
    multiply_adds: float
    n_bytes: float


def run(small: bool = False) -> str:
    if not installed("torch", "triton"):
        return "Not run: PyTorch or Triton is not installed."
    import torch

    if not torch.cuda.is_available():
        return "Not run: there is no CUDA device."
    size = SIZES[small]
    net, source = network(size)
    checked = check(size)
    rates = ceilings()
    ours = {"forward": timed(lambda: forward(net, source, size.shape), size.repeats)}
    torch.cuda.reset_peak_memory_stats()
    ours["step"] = timed(stepping(net, source, size.shape), size.repeats)
    peak = torch.cuda.max_memory_allocated() / 1e9
    theirs, crop_ours = on_crop(size)
    return _report(size, checked, rates, ours, peak, theirs, crop_ours, needed_work(net, size))


def network(size: Size, shape: tuple[int, int] | None = None) -> tuple[StackNet, Source]:
    """Three levels of full trees on a CUDA device, and smooth random features of standard deviation about 1."""
    import torch

    from hedgerow.config import Sharpness
    from hedgerow.network.layout import Source
    from hedgerow.network.mapping import to_convnet
    from net_contenders import full_forest, stack_of

    counts = [N_FEATURES, *[N_FEATURES + N_CLASSES] * (N_LEVELS - 1)]
    forests = [full_forest(k, size.n_trees, size.depth, n, N_CLASSES, REACH) for k, n in enumerate(counts)]
    net = to_convnet(stack_of(forests, N_FEATURES), "soft", Sharpness(SHARPNESS, 1.0, 1.0)).to("cuda")
    height, width = shape or size.shape
    generator = torch.Generator(device="cuda").manual_seed(0)
    noise = torch.randn(N_FEATURES, 1, height + 8, width + 8, generator=generator, device="cuda")
    return net, Source(9 * torch.nn.functional.avg_pool2d(noise, 9, 1))


def forward(net: StackNet, source: Source, shape: tuple[int, int]) -> torch.Tensor:
    import torch

    from hedgerow.network.layout import Grid

    with torch.no_grad():
        return net(source, [Grid(0, 0, *shape)] * N_LEVELS)[-1][:, 0]


def stepping(net: StackNet, source: Source, shape: tuple[int, int]) -> Callable[[], Any]:
    """A function that makes one step: forward through all levels, cross entropy, all gradients, Adam."""
    import torch

    from hedgerow.network.layout import Grid

    grid = Grid(0, 0, *shape)
    target = torch.from_numpy(np.random.default_rng(2).integers(0, N_CLASSES, (1, *grid.size))).cuda()
    optimiser = torch.optim.Adam(net.parameters())
    losses: list[torch.Tensor] = []

    def step() -> None:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(source, [grid] * N_LEVELS)[-1][None], target)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
        if len(losses) > 1:
            require(bool(losses[-1] < losses[0]), "steps do not lower the loss.")

    return step


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Seconds, the median of some repeats after one that compiles."""
    import torch

    work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return float(np.median(times))


def ceilings() -> dict[str, float]:
    """Bytes per second of a large copy, read and written; operations per second of float32 and float16 products."""
    import torch

    given = torch.randn(2**29, device="cuda")
    kept = torch.empty_like(given)
    copy = 2 * given.nbytes / timed(lambda: kept.copy_(given), 5)
    a, b = torch.randn(2, 8192, 8192, device="cuda")
    rates = {"copy": copy}
    coarse_a, coarse_b = a.half(), b.half()
    rates["float32"] = 2 * 8192**3 / timed(lambda: a @ b, 5)
    rates["float16"] = 2 * 8192**3 / timed(lambda: coarse_a @ coarse_b, 5)
    return rates


def check(size: Size) -> str:
    """The last level on a few pixels, value and gradients, beside the definition in float64.

    Allowed is twice the error (gradients: three times) that the definition makes in float32.
    """
    import torch

    from hedgerow.kernels.definition import level as definition
    from hedgerow.kernels.gpu import level as gpu_level
    from hedgerow.network.layout import Grid, Source, lay_out

    net, source = network(size, size.check)
    level, grid = net.level(N_LEVELS - 1), Grid(0, 0, *size.check)
    before = torch.rand(N_CLASSES, *grid.size, device="cuda")
    values, reads = lay_out(level.forest, level.wiring, Source(source.features, before, grid), grid)
    tensors = {
        "values": values,
        **{name: getattr(level, name) for name in ("split_weight", "split_bias", "vote_weight")},
    }
    slope = torch.randn(N_CLASSES, grid.height * grid.width, device="cuda")

    def results(kind: torch.dtype, is_ours: bool) -> dict[str, torch.Tensor]:
        leaves = {name: tensor.detach().to(kind).requires_grad_() for name, tensor in tensors.items()}
        wired = (reads, level.wiring, leaves["split_weight"], leaves["split_bias"])
        if is_ours:
            votes = (leaves["vote_weight"], "soft", "exp", 1.0)
            scores = gpu_level.level_scores(leaves["values"], *wired, *votes)
        else:
            edges = (edge.to("cuda", kind) for edge in definition.mapped_edges(level.wiring, "soft", 1.0))
            scores = definition.level_scores(leaves["values"], *wired, *edges, leaves["vote_weight"], "soft", "exp")
        scores.backward(slope.to(kind))
        found = {name: tensor.grad for name, tensor in leaves.items()}
        return {"scores": scores.detach(), **found, "values": found["values"][reads.carried :]}

    exact = results(torch.float64, False)
    plain, ours = results(torch.float32, False), results(torch.float32, True)
    texts, worst = [], 0.0
    for name, right in exact.items():
        errors = [float((one[name].double() - right).norm() / right.norm()) for one in (ours, plain)]
        allowed = (2 if name == "scores" else 3) * errors[1]
        require(errors[0] <= allowed, f"{name} are off by {errors[0]:.2g}, allowed is {allowed:.2g}.")
        worst = max(worst, errors[0] / allowed)
        texts.append(f"{name} {errors[0]:.1e} ({errors[1]:.1e})")
    return (
        f"Checked on {grid.height * grid.width} pixels against the definition in float64: relative errors, in brackets "
        f"those of the definition in float32, are {', '.join(texts)}; at most {worst:.2f} of what is allowed."
    )


def on_crop(size: Size) -> tuple[float, float]:
    """Seconds for a step on a crop: by the definition in plain PyTorch, and by ours."""
    from hedgerow.kernels.backends import Backend, backend_for
    from hedgerow.network import stacknet

    net, source = network(size, size.crop)
    ours = timed(stepping(net, source, size.crop), size.repeats)
    stacknet.backend_for = lambda device: Backend("definition", "to compare")  # type: ignore[assignment]
    try:
        theirs = timed(stepping(net, source, size.crop), 1)
    finally:
        stacknet.backend_for = backend_for
    return theirs, ours


def needed_work(net: StackNet, size: Size) -> Work:
    """Of a forward pass. Bytes: each level reads each feature and the level before once, and writes its output once."""
    n_pixels = size.shape[0] * size.shape[1]
    splits = sum(net.level(k).wiring.n_splits for k in range(N_LEVELS))
    leaves = sum(net.level(k).wiring.n_leaves for k in range(N_LEVELS))
    planes = N_LEVELS * N_FEATURES + (2 * N_LEVELS - 1) * N_CLASSES
    return Work(splits * n_pixels, leaves * N_CLASSES * n_pixels, 4.0 * planes * n_pixels)


def _report(
    size: Size, checked: str, rates: dict[str, float], ours: dict[str, float], peak: float,
    theirs: float, crop_ours: float, work: Work,
) -> str:  # fmt: skip
    import torch
    import triton

    n_pixels, n_crop = size.shape[0] * size.shape[1], size.crop[0] * size.crop[1]
    faster = theirs / n_crop / (ours["step"] / n_pixels)
    # A multiprocessor makes 128 multiply-adds per cycle, or 16 exponentials or reciprocals.
    special = rates["float32"] / 2 / 8
    floors = {
        "special functions (2 per activation)": 2 * work.activations / special,
        "plain arithmetic (20 per activation)": 20 * work.activations / (rates["float32"] / 2),
        "votes, as three passes of float16": 3 * 2 * work.multiply_adds / rates["float16"],
        "memory (each plane once per level)": work.n_bytes / rates["copy"],
    }
    rows = [[name, f"{1e3 * value:.1f}", f"{ours['forward'] / value:.1f}"] for name, value in floors.items()]
    promises = {
        "forward": (ours["forward"], PROMISED["forward"], "s"),
        "step": (ours["step"], PROMISED["step"], "s"),
        "memory": (peak, PROMISED["memory"], "GB"),
    }
    return "\n".join(
        [
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}. "
            f"{N_LEVELS} levels of {size.n_trees} full trees of depth {size.depth}, {N_CLASSES} classes, "
            f"{size.shape[0]} x {size.shape[1]} pixels, {N_FEATURES} features: {work.activations:.3g} split "
            f"activations and {work.multiply_adds:.3g} multiply-adds for the votes in each forward pass.",
            "",
            checked,
            "",
            f"In the same run, a copy reached {rates['copy'] / 1e12:.2f} TB/s and matrix products "
            f"{rates['float32'] / 1e12:.0f} "
            f"(float32) and {rates['float16'] / 1e12:.0f} (float16) TFLOP/s.",
            "",
            table(
                ["work", "seconds", "ns per pixel"],
                [
                    [name, seconds(value), f"{1e9 * value / n:.0f}"]
                    for name, value, n in (
                        ("forward", ours["forward"], n_pixels),
                        ("step of refinement", ours["step"], n_pixels),
                        (f"step, on {size.crop[0]} x {size.crop[1]}", crop_ours, n_crop),
                        (f"step, on {size.crop[0]} x {size.crop[1]}, definition in PyTorch", theirs, n_crop),
                    )
                ],
            ),
            "",
            "Floors for the forward pass, and how many times longer it takes:",
            "",
            table(["floor", "ms", "times"], rows),
            "",
            *(
                f"- {name}: {value:.3f} {unit}; promised at most {limit:g}: {'kept' if value <= limit else 'NOT KEPT'}."
                for name, (value, limit, unit) in promises.items()
            ),
            f"- a step, per pixel, against the definition: 1/{faster:.0f} (its crop against our whole image; both on "
            f"the crop, which is too small to keep the GPU busy: 1/{theirs / crop_ours:.0f}); promised at most "
            f"1/{PROMISED['reference']:g}: {'kept' if theirs / crop_ours >= PROMISED['reference'] else 'NOT KEPT'}.",
        ]
    )
