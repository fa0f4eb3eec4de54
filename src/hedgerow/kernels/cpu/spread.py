"""Planes of a lattice: what probes see of a channel at every step-th row and column, beyond the image its edge."""

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part


@kernel_part
def _spread_line(source, first, step, out):
    """out (w,) = source at first, first + step, ...; before and after it, its first and last pixel."""
    width, length = out.shape[0], source.shape[0]
    begin = min(max(-(first // step), 0), width)  # the first place that lies in the source
    end = min(max((length - 1 - first) // step + 1, begin), width)
    for k in range(begin):
        out[k] = source[0]
    if step == 1:
        inside, target = source[first + begin : first + end], out[begin:end]
        for k in range(target.shape[0]):
            target[k] = inside[k]
    else:
        place = np.uint64(first + begin * step)
        for k in range(begin, end):
            out[k] = source[place]
            place += np.uint64(step)
    for k in range(end, width):
        out[k] = source[length - 1]


@kernel
def spread(plane, shifts, top, left, step, out):
    """Fill out (n,h,w) with plane (H,W) at the rows top + shifts[n, 0] + step * i, and columns likewise."""
    height = plane.shape[0]
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            row = min(max(top + shifts[n, 0] + step * i, 0), height - 1)
            _spread_line(plane[row], left + shifts[n, 1], step, out[n, i])
