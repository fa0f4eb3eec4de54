"""The filter bank in plain PyTorch: for any dtype, and differentiable, with gradients that are finite everywhere.

A length (of the image gradient, or the root in an eigenvalue) has a kink at 0, where its gradient is defined as 0.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hedgerow.kernels.definition.gaussian import gaussian_weights


def bank(image: Tensor, sigmas: Sequence[float], dog_ratio: float, structure_ratio: float, truncate: float) -> Tensor:
    """(C*(1+8K),H,W): of each channel of an image (C,H,W), itself, and `scale_channels` at each of K sigmas."""
    channels = []
    for plane in image:
        channels.append(plane[None])
        channels += [scale_channels(plane, sigma, dog_ratio, structure_ratio, truncate) for sigma in sigmas]
    return torch.cat(channels)


def scale_channels(plane: Tensor, sigma: float, dog_ratio: float, structure_ratio: float, truncate: float) -> Tensor:
    """(8,H,W) of a plane (H,W): gaussian, laplacian, gradient magnitude, difference of Gaussians, and the eigenvalues,
    high and low, of the structure tensor and of the Hessian. Borders mirror, edge pixel included.

    dog_ratio, structure_ratio: sigma of the narrower Gaussian and of the tensor's smoothing, as parts of sigma
    truncate: where a Gaussian ends, in sigmas
    """
    weights = gaussian_weights(sigma, truncate)
    smooth, d_r, d_rr = (_filtered(plane, weights, order, 0) for order in range(3))
    gaussian, d_c, d_cc = (_filtered(smooth, weights, order, 1) for order in range(3))
    d_rc, d_rr = _filtered(d_r, weights, 1, 1), _filtered(d_rr, weights, 0, 1)
    d_r = _filtered(d_r, weights, 0, 1)
    narrow = _smoothed(plane, gaussian_weights(dog_ratio * sigma, truncate))
    outer = gaussian_weights(structure_ratio * sigma, truncate)
    tensor = [_smoothed(product, outer) for product in (d_r * d_r, d_r * d_c, d_c * d_c)]
    magnitude = _length(d_r, d_c)
    return torch.stack(
        [gaussian, d_rr + d_cc, magnitude, narrow - gaussian, *_eigenvalues(*tensor), *_eigenvalues(d_rr, d_rc, d_cc)]
    )


def _filtered(plane: Tensor, weights: np.ndarray, order: int, axis: int) -> Tensor:
    """A plane (H,W) filtered along one axis with a derivative of the Gaussian; weights: `gaussian_weights`."""
    taps = torch.as_tensor(weights, device=plane.device).to(plane.dtype)[order]
    length, radius = plane.shape[axis], len(taps) - 1
    place = torch.arange(-radius, length + radius, device=plane.device) % (2 * length)
    padded = plane.index_select(axis, torch.minimum(place, 2 * length - 1 - place))
    total = taps[0] * plane
    for k in range(1, radius + 1):
        ahead, behind = padded.narrow(axis, radius + k, length), padded.narrow(axis, radius - k, length)
        total = total + taps[k] * (ahead - behind if order == 1 else ahead + behind)
    return total


def _smoothed(plane: Tensor, weights: np.ndarray) -> Tensor:
    return _filtered(_filtered(plane, weights, 0, 0), weights, 0, 1)


def _length(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(a^2 + b^2), whose gradient is finite at 0, too; PyTorch's own is NaN there."""
    squares = a * a + b * b
    some = squares > 0
    return torch.where(some, torch.sqrt(torch.where(some, squares, 1)), 0)


def _eigenvalues(rr: Tensor, rc: Tensor, cc: Tensor) -> tuple[Tensor, Tensor]:
    """The higher and the lower eigenvalue of [[rr, rc], [rc, cc]]."""
    mean, root = 0.5 * (rr + cc), _length(0.5 * (rr - cc), rc)
    return mean + root, mean - root
