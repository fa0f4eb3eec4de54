"""The filter bank in three dimensions beside scipy.ndimage, whose filtered axes are shared as ours are.

scipy.ndimage has no eigenvalues. It is run with those of `numpy.linalg.eigvalsh`, and with second derivatives that are
0 for constants, which computes the same channels; and without both, which leaves out most channels. Our figures include
standardising, which the others are spared.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bench_filters import OURS, SHAPE, TOLERANCE, our_bank
from hedgerow.config import StackConfig
from hedgerow.features.volume_scale import VOLUME_FILTERS
from hedgerow.threads import set_threads
from measure import Cost, comparison, in_fresh_process, installed, measure, require, verdict

TITLE = "Filter bank in three dimensions"
SCIPY, EIGENVALUES = "scipy.ndimage alone", "scipy.ndimage, eigvalsh"


def scipy_volume_scale(volume: np.ndarray, sigma: float, out: np.ndarray, with_eigenvalues: bool) -> None:
    """Fill out (10,Z,H,W) with VOLUME_FILTERS at one scale; without eigenvalues, only its first four channels."""
    from scipy.ndimage import gaussian_filter, gaussian_filter1d

    def along(values: np.ndarray, axis: int, order: int) -> np.ndarray:
        filtered = gaussian_filter1d(values, sigma, axis, order)
        if order == 2 and with_eigenvalues:
            filtered -= gaussian_filter1d(np.ones(1), sigma, order=2).astype(np.float32) * values
        return filtered

    across = [along(volume, 0, order) for order in range(3)]
    down = {(z, y): along(across[z], 1, y) for z in range(3) for y in range(3 - z)}
    gaussian, d_z, d_y, d_x, zz, zy, zx, yy, yx, xx = (
        along(down[z, y], 2, x)
        for z, y, x in (
            *((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)),
            *((2, 0, 0), (1, 1, 0), (1, 0, 1), (0, 2, 0), (0, 1, 1), (0, 0, 2)),
        )
    )
    del across, down
    out[0] = gaussian
    out[1] = zz + yy + xx
    out[2] = np.sqrt(d_z * d_z + d_y * d_y + d_x * d_x)
    out[3] = gaussian_filter(volume, SHAPE.dog_ratio * sigma) - gaussian
    products = (d_z * d_z, d_z * d_y, d_z * d_x, d_y * d_y, d_y * d_x, d_x * d_x)
    tensor = [gaussian_filter(product, SHAPE.structure_ratio * sigma) for product in products]
    if with_eigenvalues:
        for first, (a, b, c, d, e, f) in ((4, tensor), (7, (zz, zy, zx, yy, yx, xx))):
            for z in range(len(volume)):
                matrices = np.stack([m[z] for m in (a, b, c, b, d, e, c, e, f)], axis=-1)
                values = np.linalg.eigvalsh(matrices.reshape(*matrices.shape[:2], 3, 3))
                out[first : first + 3, z] = np.moveaxis(values[..., ::-1], -1, 0)


def volume_work(name: str, sigmas: Sequence[float]) -> Callable[[np.ndarray], np.ndarray]:
    """A contender's whole bank as a function of the volume (Z,H,W), with one thread."""
    if name == OURS:
        set_threads(1)
        bank = our_bank(sigmas).for_volumes(1.0)
        return lambda volume: bank.compute(volume[None])

    def compute(volume: np.ndarray) -> np.ndarray:
        per_scale = len(VOLUME_FILTERS)
        features = np.empty((1 + per_scale * len(sigmas), *volume.shape), np.float32)
        features[0] = volume
        for s, sigma in enumerate(sigmas):
            own = features[1 + s * per_scale : 1 + (s + 1) * per_scale]
            scipy_volume_scale(volume, sigma, own, with_eigenvalues=name == EIGENVALUES)
        return features

    return compute


def make_volume(side: int) -> np.ndarray:
    """(side,side,side) float32: white noise on a smooth ramp."""
    ramp = np.linspace(-1, 1, side, dtype=np.float32)
    noise = np.random.default_rng(0).standard_normal((side, side, side), np.float32)
    return noise + ramp[:, None, None] * ramp[:, None] * ramp


def check_volume_channels(side: int, sigmas: Sequence[float]) -> None:
    """Raise CheckFailed if scipy's channels of a volume differ from ours."""
    volume = make_volume(side)
    ours, theirs = (volume_work(name, sigmas)(volume).reshape(-1, volume.size) for name in (OURS, EIGENVALUES))
    worst = (np.abs(ours - theirs).max(axis=1) / ours.std(axis=1)).max()
    require(worst <= TOLERANCE, f"{EIGENVALUES} and our bank of volumes differ by {worst:.1e} of a channel's spread.")


def time_volume_bank(name: str, side: int, sigmas: Sequence[float], repeats: int) -> Cost:
    volume = make_volume(side)
    work = volume_work(name, sigmas)
    work(volume[:8, :8, :8].copy())
    return measure(lambda: work(volume), repeats)[0]


def run(small: bool = False) -> str:
    side, repeats = (48, 1) if small else (128, 3)
    sigmas = StackConfig().sigmas
    n_channels = 1 + len(VOLUME_FILTERS) * len(sigmas)
    peers = [SCIPY, EIGENVALUES] if installed("scipy") else []
    if peers:
        in_fresh_process(check_volume_channels, 32, sigmas)
    costs = {name: in_fresh_process(time_volume_bank, name, side, sigmas, repeats) for name in (OURS, *peers)}
    notes = {name: f"{1000 * cost.cpu / n_channels:.1f}" for name, cost in costs.items()}
    shown = costs if peers else {**costs, SCIPY: None}
    scales = ", ".join(f"{sigma:g}" for sigma in sigmas)
    lines = [
        f"{side} x {side} x {side} float32, one grey channel; scales {scales}, {n_channels} channels. One thread.",
        "",
        comparison(shown, SCIPY, notes, "CPU ms per channel"),
        "",
    ]
    for peer in (SCIPY, EIGENVALUES):
        cpu = costs[peer].cpu if peer in costs else None
        lines.append(verdict(f"filter bank of a volume, against {peer}", costs[OURS].cpu, cpu, 0.5))
    return "\n".join(lines)
