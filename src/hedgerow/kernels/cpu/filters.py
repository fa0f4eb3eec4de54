"""The inner loops of the filter bank: separable Gaussian derivatives on rows that stay in the cache.

Each output pixel is the same sum in the same order wherever the image was cut, so tiles agree bit for bit.
Weights are (3, 1+R) float32: derivatives of order 0, 1 and 2 at distances 0..R, with R a multiple of 4 (zero padding).
Callers pass images padded by R on each side; nothing is checked here.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel


@kernel
def _four_taps(source, ahead, behind, step, width, weights, k, order0, order1, order2):
    """Add the taps at distances k..k+3 on both sides to the accumulators (width,) of the three orders.

    order1, order2: None to smooth only
    Slices show the compiler plain contiguous loads, which is five times as fast as computed indices.
    """
    a0, a1, a2, a3 = weights[0, k], weights[0, k + 1], weights[0, k + 2], weights[0, k + 3]
    b0, b1, b2, b3 = weights[1, k], weights[1, k + 1], weights[1, k + 2], weights[1, k + 3]
    c0, c1, c2, c3 = weights[2, k], weights[2, k + 1], weights[2, k + 2], weights[2, k + 3]
    x0 = source[ahead : ahead + width]
    x1 = source[ahead + step : ahead + step + width]
    x2 = source[ahead + 2 * step : ahead + 2 * step + width]
    x3 = source[ahead + 3 * step : ahead + 3 * step + width]
    y0 = source[behind : behind + width]
    y1 = source[behind - step : behind - step + width]
    y2 = source[behind - 2 * step : behind - 2 * step + width]
    y3 = source[behind - 3 * step : behind - 3 * step + width]
    for i in range(width):
        s0, s1, s2, s3 = x0[i] + y0[i], x1[i] + y1[i], x2[i] + y2[i], x3[i] + y3[i]
        if order1 is not None:
            d0, d1, d2, d3 = x0[i] - y0[i], x1[i] - y1[i], x2[i] - y2[i], x3[i] - y3[i]
            order1[i] += b0 * d0 + b1 * d1 + b2 * d2 + b3 * d3
            order2[i] += c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3
        order0[i] += a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3


@kernel
def _filter_line(source, centre, step, width, weights, order0, order1, order2):
    middle = source[centre : centre + width]
    w0, w2 = weights[0, 0], weights[2, 0]
    for i in range(width):
        order0[i] = w0 * middle[i]
        if order1 is not None:
            order1[i] = np.float32(0.0)
            order2[i] = w2 * middle[i]
    for k in range(1, weights.shape[1], 4):
        _four_taps(source, centre + k * step, centre - k * step, step, width, weights, k, order0, order1, order2)


@kernel
def smooth(padded, weights, out):
    """Gaussian smoothing. padded: flat ((H+2R)*(W+2R),); out: (H,W)."""
    radius = weights.shape[1] - 1
    height, width = out.shape
    stride = width + 2 * radius
    line = np.empty(stride, np.float32)
    for row in range(height):
        _filter_line(padded, (row + radius) * stride, stride, stride, weights, line, None, None)
        _filter_line(line, radius, 1, width, weights, out[row], None, None)


@kernel
def derivatives(padded, weights, out, tensor):
    """Fill out (8,H,W) with Gaussian, Laplacian, gradient magnitude, -, -, -, Hessian eigenvalues (high, low); and
    tensor (3,H,W) with the gradient products rr, rc, cc, which the structure tensor smooths."""
    radius = weights.shape[1] - 1
    _, height, width = out.shape
    stride = width + 2 * radius
    down = np.empty((3, stride), np.float32)
    unused = np.empty(width, np.float32)
    d_r, d_c = np.empty(width, np.float32), np.empty(width, np.float32)
    d_rr, d_rc, d_cc = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for row in range(height):
        _filter_line(padded, (row + radius) * stride, stride, stride, weights, down[0], down[1], down[2])
        _filter_line(down[0], radius, 1, width, weights, out[0, row], d_c, d_cc)
        _filter_line(down[1], radius, 1, width, weights, d_r, d_rc, unused)
        _filter_line(down[2], radius, 1, width, weights, d_rr, None, None)
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
