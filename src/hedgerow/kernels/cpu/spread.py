"""Planes of a lattice: what probes see of a channel at every step-th row and column, beyond its faces its edge."""

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
def spread(volume, shifts, front, top, left, step, out):
    """Fill out (n,d,h,w) with volume (Z,H,W) at the slices front + z, the rows top + shifts[n, 0] + step * i, and
    columns likewise."""
    depth, height = volume.shape[0], volume.shape[1]
    for n in range(out.shape[0]):
        for z in range(out.shape[1]):
            plane = volume[min(max(front + z, 0), depth - 1)]
            for i in range(out.shape[2]):
                row = min(max(top + shifts[n, 0] + step * i, 0), height - 1)
                _spread_line(plane[row], left + shifts[n, 1], step, out[n, z, i])
