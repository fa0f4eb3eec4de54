"""Values to codes: the rank of each among its channel's edges."""

import numpy as np

from hedgerow.kernels.compiling import kernel


@kernel
def encode(values, edges, out):
    """out[i] = number of the 255 ascending edges that are <= values[i]; eight steps, no branch."""
    for i in range(values.shape[0]):
        value = values[i]
        code = np.uint32(0)
        step = np.uint32(128)
        for _ in range(8):
            code += step * np.uint32(value >= edges[code + step - np.uint32(1)])
            step >>= np.uint32(1)
        out[i] = np.uint8(code)
