"""The filter bank in plain PyTorch: short, any precision, differentiable. `kernels.cpu.filters` is its fast form."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hedgerow.kernels.definition.gaussian import gaussian_weights

SMALLEST_SQUARE = 1e-30  # below it a root counts as 0, and has no gradient: that of the root would be infinite


def bank(image: Tensor, sigmas: Sequence[float], dog_ratio: float, structure_ratio: float, truncate: float) -> Tensor:
    """Raw features (F,H,W) of an image (C,H,W): of each channel its intensity, then the eight filters of each scale."""
    per_channel = [image]
    for sigma in sigmas:
        weights = gaussian_weights(sigma, truncate)
        smooth, d_r, d_c = (derived(image, weights, down, across) for down, across in ((0, 0), (1, 0), (0, 1)))
        d_rr, d_rc, d_cc = (derived(image, weights, down, across) for down, across in ((2, 0), (1, 1), (0, 2)))
        narrow = derived(image, gaussian_weights(dog_ratio * sigma, truncate), 0, 0)
        outer = gaussian_weights(structure_ratio * sigma, truncate)
        tensor = [derived(product, outer, 0, 0) for product in (d_r * d_r, d_r * d_c, d_c * d_c)]
        per_channel += [smooth, d_rr + d_cc, _root(d_r * d_r + d_c * d_c), narrow - smooth]
        per_channel += [*eigenvalues(*tensor), *eigenvalues(d_rr, d_rc, d_cc)]
    return torch.stack(per_channel, dim=1).reshape(-1, *image.shape[1:])


def derived(planes: Tensor, weights: np.ndarray, down: int, across: int) -> Tensor:
    """Planes (n,H,W) smoothed by weights (3,1+R), and derived so many times along the columns and along the rows."""
    return _filtered(_filtered(planes, weights[down], down == 1, 1), weights[across], across == 1, 2)


def _filtered(planes: Tensor, half: np.ndarray, is_odd: bool, axis: int) -> Tensor:
    """Planes (n,H,W) filtered along an axis by weights given at distances 0..R; borders mirror, edge included."""
    radius, length = len(half) - 1, planes.shape[axis]
    place = np.arange(-radius, length + radius) % (2 * length)
    mirrored = torch.as_tensor(np.where(place < length, place, 2 * length - 1 - place), device=planes.device)
    kernel = np.concatenate([-half[:0:-1] if is_odd else half[:0:-1], [0.0 if is_odd else half[0]], half[1:]])
    shape = (1, 1, -1, 1) if axis == 1 else (1, 1, 1, -1)
    given = planes.index_select(axis, mirrored)[:, None]
    return functional.conv2d(given, torch.as_tensor(kernel, dtype=planes.dtype, device=planes.device).reshape(shape))[
        :, 0
    ]


def eigenvalues(rr: Tensor, rc: Tensor, cc: Tensor) -> tuple[Tensor, Tensor]:
    """The larger and the smaller eigenvalue of [[rr, rc], [rc, cc]] at every pixel."""
    mean, spread = (rr + cc) / 2, (rr - cc) / 2
    root = _root(spread * spread + rc * rc)
    return mean + root, mean - root


def _root(squares: Tensor) -> Tensor:
    return torch.sqrt(squares.clamp(min=SMALLEST_SQUARE))
