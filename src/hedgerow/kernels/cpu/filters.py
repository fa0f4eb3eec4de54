"""The inner loops of the filter bank: separable Gaussian derivatives on rows that stay in the cache.

Each output pixel is the same sum in the same order wherever the image was cut, so tiles agree bit for bit.
Weights are (3, 1+R) float32: derivatives of order 0, 1 and 2 at distances 0..R, with R a multiple of 4 (zero padding).
Callers pass images padded by R on each side; nothing is checked here.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel

LINE_NUMBERS = 1024  # numbers; a few dozen such lines fit into the second cache


@kernel
def _four_taps(source, ahead, behind, width, weights, k, order0, order1, order2):
    """Add the taps at distances k..k+3 on both sides to the accumulators (width,) of the three orders.

    ahead, behind:  where in the source each of the four begins
    order1, order2: None to leave out this derivative
    Slices show the compiler plain contiguous loads, which is five times as fast as computed indices.
    """
    a0, a1, a2, a3 = weights[0, k], weights[0, k + 1], weights[0, k + 2], weights[0, k + 3]
    b0, b1, b2, b3 = weights[1, k], weights[1, k + 1], weights[1, k + 2], weights[1, k + 3]
    c0, c1, c2, c3 = weights[2, k], weights[2, k + 1], weights[2, k + 2], weights[2, k + 3]
    x0 = source[ahead[0] : ahead[0] + width]
    x1 = source[ahead[1] : ahead[1] + width]
    x2 = source[ahead[2] : ahead[2] + width]
    x3 = source[ahead[3] : ahead[3] + width]
    y0 = source[behind[0] : behind[0] + width]
    y1 = source[behind[1] : behind[1] + width]
    y2 = source[behind[2] : behind[2] + width]
    y3 = source[behind[3] : behind[3] + width]
    for i in range(width):
        s0, s1, s2, s3 = x0[i] + y0[i], x1[i] + y1[i], x2[i] + y2[i], x3[i] + y3[i]
        if order1 is not None:
            d0, d1, d2, d3 = x0[i] - y0[i], x1[i] - y1[i], x2[i] - y2[i], x3[i] - y3[i]
            order1[i] += b0 * d0 + b1 * d1 + b2 * d2 + b3 * d3
        if order2 is not None:
            order2[i] += c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3
        order0[i] += a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3


@kernel
def _centre_tap(source, centre, width, weights, order0, order1, order2):
    middle = source[centre : centre + width]
    w0, w2 = weights[0, 0], weights[2, 0]
    for i in range(width):
        order0[i] = w0 * middle[i]
        if order1 is not None:
            order1[i] = np.float32(0.0)
        if order2 is not None:
            order2[i] = w2 * middle[i]


@kernel
def filter_line(source, centre, step, width, weights, order0, order1, order2):
    """Fill order0 (width,), and order1 and order2 unless they are None, with the source filtered at the positions from
    `centre` on; neighbours are `step` apart."""
    _centre_tap(source, centre, width, weights, order0, order1, order2)
    for k in range(1, weights.shape[1], 4):
        ahead, behind = centre + k * step, centre - k * step
        _four_taps(
            source,
            (ahead, ahead + step, ahead + 2 * step, ahead + 3 * step),
            (behind, behind - step, behind - 2 * step, behind - 3 * step),
            width,
            weights,
            k,
            order0,
            order1,
            order2,
        )


@kernel
def filter_planes(source, places, start, width, weights, order0, order1, order2):
    """As `filter_line`, but the planes at distances -R..R begin at these places (1+2R,) of the source, of which the
    positions from `start` on are filtered."""
    radius = weights.shape[1] - 1
    _centre_tap(source, places[radius] + start, width, weights, order0, order1, order2)
    for k in range(1, weights.shape[1], 4):
        p, q = radius + k, radius - k
        _four_taps(
            source,
            (places[p] + start, places[p + 1] + start, places[p + 2] + start, places[p + 3] + start),
            (places[q] + start, places[q - 1] + start, places[q - 2] + start, places[q - 3] + start),
            width,
            weights,
            k,
            order0,
            order1,
            order2,
        )


@kernel
def smooth(padded, weights, out):
    """Gaussian smoothing. padded: flat ((H+2R)*(W+2R),); out: (H,W)."""
    radius = weights.shape[1] - 1
    smooth_window(padded, out.shape[1] + 2 * radius, radius, radius, weights, out)


@kernel
def smooth_window(padded, stride, top, left, weights, out):
    """Gaussian smoothing of the part of a plane, with rows of length `stride`, that begins at this row and column."""
    height, width = out.shape
    n_rows = rows_at_once(stride)
    line = np.empty(n_rows * stride, np.float32)
    smoothed = np.empty(n_rows * stride, np.float32)
    for first in range(0, height, n_rows):
        n = min(n_rows, height - first)
        filter_line(padded, (top + first) * stride, stride, n * stride, weights, line, None, None)
        if n == 1:
            filter_line(line, left, 1, width, weights, out[first], None, None)
        else:
            filter_line(line, left, 1, (n - 1) * stride + width, weights, smoothed, None, None)
            for r in range(n):
                out[first + r] = smoothed[r * stride : r * stride + width]


@kernel
def rows_at_once(stride):
    """How many rows are filtered as one line, padding included: short lines take almost as long as longer ones."""
    return max(LINE_NUMBERS // stride, 1)


@kernel
def derivatives(padded, weights, out, tensor):
    """Fill out (8,H,W) with Gaussian, Laplacian, gradient magnitude, -, -, -, Hessian eigenvalues (high, low); and
    tensor (3,H,W) with the gradient products rr, rc, cc, which the structure tensor smooths."""
    radius = weights.shape[1] - 1
    _, height, width = out.shape
    stride = width + 2 * radius
    down = np.empty((3, stride), np.float32)
    d_r, d_c = np.empty(width, np.float32), np.empty(width, np.float32)
    d_rr, d_rc, d_cc = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for row in range(height):
        filter_line(padded, (row + radius) * stride, stride, stride, weights, down[0], down[1], down[2])
        filter_line(down[0], radius, 1, width, weights, out[0, row], d_c, d_cc)
        filter_line(down[1], radius, 1, width, weights, d_r, d_rc, None)
        filter_line(down[2], radius, 1, width, weights, d_rr, None, None)
        laplacian, magnitude = out[1, row], out[2, row]
        rr, rc, cc = tensor[0, row], tensor[1, row], tensor[2, row]
        for i in range(width):
            rr[i] = d_r[i] * d_r[i]
            rc[i] = d_r[i] * d_c[i]
            cc[i] = d_c[i] * d_c[i]
        for i in range(width):
            magnitude[i] = np.sqrt(rr[i] + cc[i])
            laplacian[i] = d_rr[i] + d_cc[i]
        _eigenvalues(d_rr, d_rc, d_cc, out[6, row], out[7, row])


@kernel
def _eigenvalues(rr, rc, cc, high, low):
    half = np.float32(0.5)
    for i in range(rr.shape[0]):
        mean = half * (rr[i] + cc[i])
        spread = half * (rr[i] - cc[i])
        root = np.sqrt(spread * spread + rc[i] * rc[i])
        high[i] = mean + root
        low[i] = mean - root


@kernel
def symmetric_eigenvalues(rr, rc, cc, high, low):
    """Eigenvalues of [[rr, rc], [rc, cc]] at each pixel of arrays (H,W)."""
    for row in range(rr.shape[0]):
        _eigenvalues(rr[row], rc[row], cc[row], high[row], low[row])


@kernel
def standardise(channels, mean, scale):
    """channels (F,H*W) <- (channels - mean) * scale, in place."""
    for f in range(channels.shape[0]):
        plane, centre, factor = channels[f], mean[f], scale[f]
        for i in range(plane.shape[0]):
            plane[i] = (plane[i] - centre) * factor
