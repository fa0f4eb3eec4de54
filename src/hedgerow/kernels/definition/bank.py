"""The filter bank in plain PyTorch: for any dtype, and differentiable, with gradients that are finite everywhere.

A length (of the image gradient, or the root in an eigenvalue) has a kink at 0, where its gradient is defined as 0.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hedgerow.kernels.definition.gaussian import gaussian_weights, is_flat, volume_weights


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


def volume_bank(
    volume: Tensor,
    sigmas: Sequence[float],
    anisotropy: float,
    dog_ratio: float,
    structure_ratio: float,
    truncate: float,
) -> Tensor:
    """(F,Z,H,W): of each channel of a volume (C,Z,H,W), itself, and `volume_channels` at each sigma, or for scales that
    hardly look into other slices `scale_channels` of each slice.

    anisotropy: pixels between slices
    """
    ratios, channels = (dog_ratio, structure_ratio, truncate), []
    for channel in volume:
        channels.append(channel[None])
        for sigma in sigmas:
            if is_flat(sigma, anisotropy):
                channels.append(torch.stack([scale_channels(plane, sigma, *ratios) for plane in channel], dim=1))
            else:
                channels.append(volume_channels(channel, sigma, anisotropy, *ratios))
    return torch.cat(channels)


def volume_channels(
    volume: Tensor, sigma: float, anisotropy: float, dog_ratio: float, structure_ratio: float, truncate: float
) -> Tensor:
    """(10,Z,H,W) of a volume (Z,H,W): as `scale_channels`, with three eigenvalues of each matrix, high to low."""

    def gaussian(scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        along = volume_weights(scale, 1.0, truncate)
        return volume_weights(scale, anisotropy, truncate), along, along

    def derivative(*orders: int) -> Tensor:
        result = volume
        for axis, (weights, order) in enumerate(zip(gaussian(sigma), orders, strict=True)):
            result = _filtered(result, weights, order, axis)
        return result

    def smoothed(values: Tensor, scale: float) -> Tensor:
        for axis, weights in enumerate(gaussian(scale)):
            values = _filtered(values, weights, 0, axis)
        return values

    smooth = derivative(0, 0, 0)
    z, y, x = derivative(1, 0, 0), derivative(0, 1, 0), derivative(0, 0, 1)
    zz, yy, xx = derivative(2, 0, 0), derivative(0, 2, 0), derivative(0, 0, 2)
    zy, zx, yx = derivative(1, 1, 0), derivative(1, 0, 1), derivative(0, 1, 1)
    products = (z * z, z * y, z * x, y * y, y * x, x * x)
    tensor = [smoothed(product, structure_ratio * sigma) for product in products]
    simple = smooth, zz + yy + xx, _length(z, y, x), smoothed(volume, dog_ratio * sigma) - smooth
    return torch.stack([*simple, *eigenvalues3(*tensor), *eigenvalues3(zz, zy, zx, yy, yx, xx)])


def _filtered(plane: Tensor, weights: np.ndarray, order: int, axis: int) -> Tensor:
    """A plane (H,W), or a volume, filtered along one axis with a derivative; weights: those of `gaussian`."""
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


def _length(*components: Tensor) -> Tensor:
    """The root of the sum of squares, whose gradient is finite at 0, too; PyTorch's own is NaN there."""
    squares = torch.stack([component * component for component in components]).sum(0)
    some = squares > 0
    return torch.where(some, torch.sqrt(torch.where(some, squares, 1)), 0)


def _eigenvalues(rr: Tensor, rc: Tensor, cc: Tensor) -> tuple[Tensor, Tensor]:
    """The higher and the lower eigenvalue of [[rr, rc], [rc, cc]]."""
    mean, root = 0.5 * (rr + cc), _length(0.5 * (rr - cc), rc)
    return mean + root, mean - root


def eigenvalues3(
    zz: Tensor, zy: Tensor, zx: Tensor, yy: Tensor, yx: Tensor, xx: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The eigenvalues of [[zz, zy, zx], [zy, yy, yx], [zx, yx, xx]], high to low.

    With q the mean of the diagonal, the matrix is q + p B, where the squares of B sum to 6, and B has the eigenvalues
    2 cos(angle + 2 k pi / 3), 3 angle = acos(r), r = det B / 2. It is computed in double precision, since only half of
    the digits are left where two eigenvalues nearly agree. Where they agree to six digits, the gradient of the angle is
    defined as 0, so that the two share their gradient.
    """
    dtype = zz.dtype
    zz, zy, zx, yy, yx, xx = (entry.double() for entry in (zz, zy, zx, yy, yx, xx))
    q = (zz + yy + xx) / 3
    p = _length(zz - q, yy - q, xx - q, *(entry for entry in (zy, zx, yx) for _ in range(2))) / 6**0.5
    unit = torch.where(p > 0, p, 1)
    a, b, c, d, e, f = ((entry / unit) for entry in (zz - q, yy - q, xx - q, zy, zx, yx))
    r = (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e)) / 2
    apart = 1 - r.abs() > 1e-12
    fixed = torch.acos(r.detach().clamp(-1, 1))
    angle = torch.where(apart, torch.acos(torch.where(apart, r, 0)), fixed) / 3
    high, low = q + 2 * p * torch.cos(angle), q + 2 * p * torch.cos(angle + 2 * torch.pi / 3)
    return high.to(dtype), (3 * q - high - low).to(dtype), low.to(dtype)
