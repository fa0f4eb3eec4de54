"""Whole planes prepared for splits to read: means over boxes, codes of values, and lattices of pixels."""

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.cpu.filters import smooth
from hedgerow.kernels.definition.gaussian import box_weights


def box_averaged(volume: np.ndarray, radius: int, outside: float | None = None) -> np.ndarray:
    """(Z,H,W) mean over the box of `radius` around each pixel in its slice, in a fixed order so that tiles agree."""
    if radius == 0:
        return volume
    weights = box_weights(radius)
    pad = weights.shape[1] - 1
    edges = {"mode": "edge"} if outside is None else {"mode": "constant", "constant_values": outside}
    averaged = np.empty(volume.shape, np.float32)
    for plane, out in zip(volume, averaged, strict=True):
        smooth(np.pad(plane.astype(np.float32), pad, **edges).ravel(), weights, out)
    return averaged


@kernel_part
def code_of(value, edges):
    """The number of the 255 ascending edges that are <= value, in eight steps without a branch."""
    code = np.uint32(0)
    step = np.uint32(128)
    for _ in range(8):
        code += step * np.uint32(value >= edges[code + step - np.uint32(1)])
        step >>= np.uint32(1)
    return np.uint8(code)


@kernel
def encode(values, edges, out):
    """Fill out (n,) with the codes of values (n,)."""
    for i in range(values.shape[0]):
        out[i] = code_of(values[i], edges)


@kernel_part
def _spread_line(source, first, step, out):
    """Fill out (w,) with source at first, first + step, ...; beyond its ends, with its first and last pixel."""
    width, length = out.shape[0], source.shape[0]
    begin = min(max(-(first // step), 0), width)  # the first place inside the source
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
    """Fill out (n,d,h,w), planes of a lattice, with volume (Z,H,W) at the slices front + z, the rows
    top + shifts[n, 0] + step * i, and columns likewise; outside the volume, with its nearest voxel."""
    depth, height = volume.shape[0], volume.shape[1]
    for n in range(out.shape[0]):
        for z in range(out.shape[1]):
            plane = volume[min(max(front + z, 0), depth - 1)]
            for i in range(out.shape[2]):
                row = min(max(top + shifts[n, 0] + step * i, 0), height - 1)
                _spread_line(plane[row], left + shifts[n, 1], step, out[n, z, i])
