"""The filter bank beside OpenCV and scipy.ndimage computing the same channels of one 1024 x 1024 image.

OpenCV is run twice: with `sepFilter2D`, its function for separable filters, and with `filter2D` one axis at a
time, which reuses the three filtered columns as our bank does and turns to Fourier transforms for long
kernels. Our figures include standardising the channels, which the others are spared.
"""

import importlib.metadata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.features.bank import FILTERS, Bank, Proportions
from hedgerow.features.protocol import unfitted
from hedgerow.threads import set_threads
from measure import (
    THREADS,
    Cost,
    comparison,
    in_fresh_process,
    installed,
    measure,
    require,
    seconds,
    table,
    verdict,
)

TITLE = "Filter bank"
OURS, SEPARABLE, BY_AXIS, SCIPY = "hedgerow", "OpenCV sepFilter2D", "OpenCV filter2D", "scipy.ndimage"
SHAPE = Proportions()
COARSE = (16.0, 32.0, 64.0)
TOLERANCE = 1e-3
"""Largest accepted difference from our channels, in standard deviations of the channel."""

ScaleFunction = Callable[[np.ndarray, float, np.ndarray], None]


def make_image(side: int) -> np.ndarray:
    """(side,side) float32: white noise on a smooth ramp, which has structure at every scale."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(-1, 1, side, dtype=np.float32)
    return rng.standard_normal((side, side), np.float32) + ramp[:, None] * ramp[None, :]


def our_bank(sigmas: Sequence[float]) -> Bank:
    """The bank without standardisation of its input, so that its channels are the filters' own values."""
    as_given = np.zeros(1, np.float32), np.ones(1, np.float32)
    return Bank(1, tuple(sigmas), SHAPE, *as_given, **unfitted(1 + len(FILTERS) * len(sigmas)))


def symmetric_kernels(sigma: float) -> list[np.ndarray]:
    """The Gaussian and its two derivatives as odd-length float32 kernels, without our padding."""
    reach = 1 + int(SHAPE.truncate * sigma + 0.5)
    smooth, first, second = SHAPE.weights(sigma)[:, :reach]
    return [np.concatenate([sign * half[:0:-1], half]) for sign, half in ((1, smooth), (-1, first), (1, second))]


def _separable(plane: np.ndarray, sigma: float) -> list[np.ndarray]:
    """Gaussian, d_r, d_c, d_rr, d_rc, d_cc: OpenCV's separable filter, once for each."""
    import cv2

    kernels = symmetric_kernels(sigma)
    orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    return [
        cv2.sepFilter2D(plane, cv2.CV_32F, kernels[c], kernels[r], borderType=cv2.BORDER_REFLECT) for r, c in orders
    ]


def _by_axis(plane: np.ndarray, sigma: float) -> list[np.ndarray]:
    """The same six, from three shared columns."""
    import cv2

    kernels = symmetric_kernels(sigma)
    down = [cv2.filter2D(plane, cv2.CV_32F, k[:, None], borderType=cv2.BORDER_REFLECT) for k in kernels]
    orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    return [cv2.filter2D(down[r], cv2.CV_32F, kernels[c][None, :], borderType=cv2.BORDER_REFLECT) for r, c in orders]


def _smooth_separable(plane: np.ndarray, sigma: float) -> np.ndarray:
    import cv2

    kernel = symmetric_kernels(sigma)[0]
    return cv2.sepFilter2D(plane, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REFLECT)


def _smooth_by_axis(plane: np.ndarray, sigma: float) -> np.ndarray:
    import cv2

    kernel = symmetric_kernels(sigma)[0]
    down = cv2.filter2D(plane, cv2.CV_32F, kernel[:, None], borderType=cv2.BORDER_REFLECT)
    return cv2.filter2D(down, cv2.CV_32F, kernel[None, :], borderType=cv2.BORDER_REFLECT)


def _opencv_eigenvalues(rr: np.ndarray, rc: np.ndarray, cc: np.ndarray, high: np.ndarray, low: np.ndarray) -> None:
    import cv2

    mean = cv2.addWeighted(rr, 0.5, cc, 0.5, 0)
    root = cv2.magnitude(cv2.addWeighted(rr, 0.5, cc, -0.5, 0), rc)
    cv2.add(mean, root, dst=high)
    cv2.subtract(mean, root, dst=low)


def opencv_scale(plane: np.ndarray, sigma: float, out: np.ndarray, separable: bool) -> None:
    """Fill out (8,H,W) with FILTERS at one scale."""
    import cv2

    derivatives, smooth = (_separable, _smooth_separable) if separable else (_by_axis, _smooth_by_axis)
    gaussian, d_r, d_c, d_rr, d_rc, d_cc = derivatives(plane, sigma)
    out[0] = gaussian
    cv2.add(d_rr, d_cc, dst=out[1])
    cv2.magnitude(d_r, d_c, magnitude=out[2])
    cv2.subtract(smooth(plane, SHAPE.dog_ratio * sigma), gaussian, dst=out[3])
    products = (cv2.multiply(d_r, d_r), cv2.multiply(d_r, d_c), cv2.multiply(d_c, d_c))
    _opencv_eigenvalues(*(smooth(product, SHAPE.structure_ratio * sigma) for product in products), out[4], out[5])
    _opencv_eigenvalues(d_rr, d_rc, d_cc, out[6], out[7])


def scipy_scale(plane: np.ndarray, sigma: float, out: np.ndarray) -> None:
    """Fill out (8,H,W) with FILTERS at one scale, the filtered columns shared."""
    from scipy.ndimage import gaussian_filter, gaussian_filter1d

    down = [gaussian_filter1d(plane, sigma, 0, order) for order in range(3)]
    orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    gaussian, d_r, d_c, d_rr, d_rc, d_cc = (gaussian_filter1d(down[r], sigma, 1, c) for r, c in orders)
    out[0] = gaussian
    out[1] = d_rr + d_cc
    out[2] = np.hypot(d_r, d_c)
    out[3] = gaussian_filter(plane, SHAPE.dog_ratio * sigma) - gaussian
    rr, rc, cc = (gaussian_filter(p, SHAPE.structure_ratio * sigma) for p in (d_r * d_r, d_r * d_c, d_c * d_c))
    for first, (a, b, c) in ((4, (rr, rc, cc)), (6, (d_rr, d_rc, d_cc))):
        mean, root = (a + c) / 2, np.hypot((a - c) / 2, b)
        out[first], out[first + 1] = mean + root, mean - root


def whole_bank(scale: ScaleFunction, image: np.ndarray, sigmas: Sequence[float], n_threads: int) -> np.ndarray:
    """(F,H,W): the image and every scale's channels; threads share the scales, coarse ones first."""
    features = np.empty((1 + len(FILTERS) * len(sigmas), *image.shape), np.float32)
    features[0] = image

    def fill(s: int) -> None:
        scale(image, sigmas[s], features[1 + s * len(FILTERS) : 1 + (s + 1) * len(FILTERS)])

    coarse_first = sorted(range(len(sigmas)), key=lambda s: -sigmas[s])
    if n_threads == 1:
        list(map(fill, coarse_first))
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(fill, coarse_first))
    return features


def make_work(name: str, sigmas: Sequence[float], n_threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """A contender's whole bank as a function of the image."""
    if name == OURS:
        set_threads(n_threads)
        bank = our_bank(sigmas)
        return lambda image: bank.compute(image[None])
    if name == SCIPY:
        return lambda image: whole_bank(scipy_scale, image, sigmas, n_threads)
    import cv2

    cv2.setNumThreads(n_threads)

    def scale(plane: np.ndarray, sigma: float, out: np.ndarray) -> None:
        opencv_scale(plane, sigma, out, separable=name == SEPARABLE)

    return lambda image: whole_bank(scale, image, sigmas, n_threads)


def check_channels(name: str, side: int, sigmas: Sequence[float]) -> None:
    """Raise CheckFailed if a contender's channels differ from ours."""
    image = make_image(side)
    ours, theirs = make_work(OURS, sigmas, 1)(image), make_work(name, sigmas, 1)(image)
    worst = (np.abs(ours - theirs).max(axis=(1, 2)) / ours.std(axis=(1, 2))).max()
    require(worst <= TOLERANCE, f"{name} and our bank differ by {worst:.1e} of a channel's spread.")


def time_bank(name: str, side: int, sigmas: Sequence[float], n_threads: int, repeats: int) -> Cost:
    image = make_image(side)
    work = make_work(name, sigmas, n_threads)
    work(image[:64, :64].copy())
    return measure(lambda: work(image), repeats)[0]


def _measured(names: Sequence[str], side: int, sigmas: Sequence[float], n_threads: int, repeats: int) -> dict:
    return {name: in_fresh_process(time_bank, name, side, tuple(sigmas), n_threads, repeats) for name in names}


def _best_opencv(costs: dict[str, Cost]) -> float | None:
    found = [cost.cpu for name, cost in costs.items() if name in (SEPARABLE, BY_AXIS)]
    return min(found, default=None)


def run(small: bool = False) -> str:
    side, repeats = (256, 2) if small else (1024, 5)
    sigmas, coarse = StackConfig().sigmas, COARSE[:1] if small else COARSE
    opencv = [SEPARABLE, BY_AXIS] if installed("cv2") else []
    peers = opencv + ([SCIPY] if installed("scipy") else [])
    for name in peers:
        in_fresh_process(check_channels, name, side, (*sigmas, *coarse))

    lines = [f"{side} x {side} float32, one grey channel; scales {', '.join(f'{s:g}' for s in sigmas)}."]
    if opencv:
        lines[0] += f" OpenCV {importlib.metadata.version('opencv-python-headless')}."
    for n_threads in (1, THREADS):
        threads = "1 thread" if n_threads == 1 else f"{n_threads} threads"
        names = [OURS, *(peers if n_threads == 1 else opencv)]
        costs = _measured(names, side, sigmas, n_threads, repeats)
        shown = costs if opencv else {**costs, "OpenCV": None}
        lines += ["", f"The whole bank, {threads}:", "", comparison(shown, BY_AXIS)]
        what = f"filter bank, {threads}, against OpenCV's faster form"
        lines += ["", verdict(what, costs[OURS].cpu, _best_opencv(costs), 1.0)]

    rows = []
    for sigma in coarse:
        costs = _measured([OURS, *opencv], side, [sigma], 1, 2)
        rows.append([f"{sigma:g}", *(seconds(cost.cpu) for cost in costs.values())])
    lines += ["", "One coarser scale, one thread, CPU seconds:", "", table(["sigma", OURS, *opencv], rows)]
    return "\n".join(lines)
