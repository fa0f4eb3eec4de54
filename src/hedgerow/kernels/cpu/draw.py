"""Random candidates for splits, from a small random generator whose numbers depend only on the seed."""

import math
from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel_part

OFFSET, DEPTH, OBLIQUE = 0, 1, 2  # kinds of candidates
N_DEPTH_CHANNELS = 2  # the first channels of depth images: depth, and whether it was measured


class Proposals(NamedTuple):
    """How candidates are drawn.

    recipe: OFFSET, DEPTH or OBLIQUE; n_drawn: channels to draw at a node
    n_offsets: candidates per channel, in addition to one at the pixel itself
    n_radii: planes per channel; planes are numbered channel by channel
    half_window: largest offset in rows and columns; half_depth: in slices
    sigma: float64, standard deviation of offsets in rows and columns (DEPTH)
    n_depth: candidates per node that compare depths (DEPTH); the depth channels are then not drawn
    """

    recipe: int
    n_channels: int
    n_radii: int
    n_drawn: int
    n_offsets: int
    half_window: int
    half_depth: int
    sigma: float
    n_depth: int = 0


@kernel_part
def next_random(state):
    """64 random bits; state (1,) uint64 moves on (the splitmix64 generator)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel_part
def random_below(state, n):
    """A random integer in 0..n-1."""
    return np.int64(((next_random(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel_part
def random_normal(state):
    """A standard normal number (Box and Muller)."""
    u = (np.float64(next_random(state) >> np.uint64(11)) + 1.0) / 9007199254740992.0
    v = np.float64(next_random(state) >> np.uint64(11)) / 9007199254740992.0
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)


@kernel_part
def _draw_offset(state, half_window, half_depth, offset):
    """Fill offset (3,) with a random one within the window; if that is one slice deep, no slice is drawn."""
    width = 2 * half_window + 1
    if half_depth > 0:
        offset[0] = random_below(state, 2 * half_depth + 1) - half_depth
    offset[1] = random_below(state, width) - half_window
    offset[2] = random_below(state, width) - half_window


@kernel_part
def draw_candidate(state, proposals, channel, is_first, candidate):
    """Fill a candidate, `Probes` of one node, with random probes of a channel; is_first: at the pixel itself."""
    plane, offset, weight = candidate.plane[0], candidate.offset[0], candidate.weight[0]
    n_radii, half_window, sigma = proposals.n_radii, proposals.half_window, proposals.sigma
    for j in range(plane.shape[0]):
        weight[j] = 0.0
        plane[j] = 0
        offset[j, :] = 0.0
    weight[0] = 1.0
    plane[0] = channel * n_radii + random_below(state, n_radii)
    if proposals.recipe == DEPTH:
        if not (is_first and channel != 0):
            offset[0, 1] = sigma * random_normal(state)
            offset[0, 2] = sigma * random_normal(state)
        if channel == 0:  # always the difference of two depths, so that the distance to the camera does not matter
            weight[1] = -1.0
            plane[1] = plane[0]
            if random_below(state, 2) == 1:
                offset[1, 1] = sigma * random_normal(state)
                offset[1, 2] = sigma * random_normal(state)
        return
    if is_first:
        return
    _draw_offset(state, half_window, proposals.half_depth, offset[0])
    if proposals.recipe == OBLIQUE:
        norm = 0.0
        for j in range(plane.shape[0]):
            weight[j] = random_normal(state)
            norm += weight[j] * weight[j]
            if j > 0:
                plane[j] = random_below(state, proposals.n_channels) * n_radii + random_below(state, n_radii)
                _draw_offset(state, half_window, proposals.half_depth, offset[j])
        for j in range(plane.shape[0]):
            weight[j] /= math.sqrt(norm)
