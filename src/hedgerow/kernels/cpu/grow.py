"""Growing one tree: candidates drawn when needed, a histogram of values and classes, the best cut, a stable partition.

The search has two forms. With `codes` (one byte per pixel: the rank of its value among the channel's edges) a probe is
already its bin. With `values` (float32, for sums of probes) bins are cut between values found in the node.
Nothing is checked here; callers size every array.
"""

import math
from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.cpu.draw import N_DEPTH_CHANNELS, draw_candidate, random_below
from hedgerow.kernels.cpu.walk import Probes, probe_sum

MAX_BINS = 256
SAMPLED_VALUES = 128  # values of a node between which thresholds are sought if probes are summed
ROW, COLUMN, SLICE, PIXEL, TARGET, COUNT = 0, 1, 2, 3, 4, 5  # rows of the samples (6,S) int32, or int64


class Planes(NamedTuple):
    """P planes of several images; all pixels of an image lie together, slice after slice.

    codes:   (P,pixels) uint8, or values: (P,pixels) float32; the other one has no planes
    start, height, width: (slices,), first pixel and size of each slice
    front, back: (slices,), first and end slice of the image that a slice belongs to
    stretch: (pixels,) float32 factor for the offsets, or empty
    outside: (P,) float32 constants beyond the border, or empty for the nearest edge pixel
    """

    codes: np.ndarray
    values: np.ndarray
    start: np.ndarray
    height: np.ndarray
    width: np.ndarray
    front: np.ndarray
    back: np.ndarray
    stretch: np.ndarray
    outside: np.ndarray


class Limits(NamedTuple):
    """When a node becomes a leaf, and how splits are compared.

    search_samples: the most samples of a node that its split is sought on; entropy: the criterion, else Gini impurity
    """

    max_depth: int
    min_split: int
    min_leaf: int
    search_samples: int
    entropy: bool


class Grown(NamedTuple):
    """The arrays of a tree, long enough for all its nodes, filled as it grows.

    left_child: (N,) int32, LEAF at a leaf; threshold: (N,) float32, a code or a value
    plane: (N,J) int32; offset: (N,J,3) float32; weight: (N,J) float32
    counts: (N,C) int64, samples of each class, initially zero
    """

    left_child: np.ndarray
    threshold: np.ndarray
    plane: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    counts: np.ndarray


@kernel_part
def fill_codes(planes, samples, begin, n, probes, k, place, bins):
    """bins[i] = the code that the only probe of node k reads for sample begin+i; place (>=n,), unsigned, is scratch."""
    line, start, height, width = planes.codes[probes.plane[k, 0]], planes.start, planes.height, planes.width
    row, column = samples[ROW, begin : begin + n], samples[COLUMN, begin : begin + n]
    of_slice, pixel = samples[SLICE, begin : begin + n], samples[PIXEL, begin : begin + n]
    back, down, right = (
        np.int32(probes.offset[k, 0, 0]), np.int32(probes.offset[k, 0, 1]), np.int32(probes.offset[k, 0, 2])
    )  # fmt: skip
    zero, unit = np.int32(0), np.int32(1)
    if back == 0 and down == 0 and right == 0:
        for i in range(n):
            bins[i] = line[place.dtype.type(pixel[i])]
        return
    # Places first, then reads: so short a second loop keeps many cache misses in flight, which is twice as fast.
    for i in range(n):
        m = np.uint32(of_slice[i])
        r = min(max(row[i] + down, zero), height[m] - unit)
        c = min(max(column[i] + right, zero), width[m] - unit)
        place[i] = place.dtype.type(start[m] + r * width[m] + c)
    if back != 0:
        for i in range(n):
            m = np.uint32(of_slice[i])
            seen = np.uint32(min(max(of_slice[i] + back, planes.front[m]), planes.back[m] - unit))
            place[i] = place.dtype.type(place[i] + start[seen] - start[m])
    for i in range(n):
        bins[i] = line[place[i]]


@kernel_part
def fill_values(planes, samples, begin, n, probes, k, values):
    """values[i] = the value that node k compares with its threshold for sample begin+i."""
    plane, offset, weight, stretch = probes.plane[k], probes.offset[k], probes.weight[k], np.float32(1)
    for i in range(n):
        s = begin + i
        m = samples[SLICE, s]
        front, back = planes.front[m], planes.back[m]
        if planes.stretch.shape[0] > 0:
            stretch = planes.stretch[samples[PIXEL, s]]
        values[i] = probe_sum(
            planes.values, planes.start[front], (back - front, planes.height[m], planes.width[m]), stretch,
            planes.outside, plane, offset, weight, m - front, samples[ROW, s], samples[COLUMN, s],
        )  # fmt: skip


@kernel
def bin_values(values, n, edges, bins):
    """Fill bins (n,) with values (n,) cut at up to SAMPLED_VALUES-1 edges between them; returns the number of bins."""
    m = min(n, SAMPLED_VALUES)
    sample = np.empty(m, np.float32)
    for i in range(m):
        sample[i] = values[(i * n) // m]
    sample.sort()
    n_edges = 0
    for i in range(1, m):
        if sample[i] > sample[i - 1]:
            middle = np.float32(sample[i - 1] + np.float32(0.5) * (sample[i] - sample[i - 1]))
            # Between neighbouring floats there is no middle; then the upper one separates them.
            edges[n_edges] = middle if middle > sample[i - 1] else sample[i]
            n_edges += 1
    for i in range(n):
        low, high = 0, n_edges
        while low < high:
            mid = (low + high) // 2
            if values[i] >= edges[mid]:
                low = mid + 1
            else:
                high = mid
        bins[i] = low
    return n_edges + 1


@kernel
def _term(x, entropy):
    if entropy:
        return x * math.log(x) if x > 0 else 0.0
    return x * x


@kernel
def _quality(left_sum, left_weight, right_sum, right_weight, entropy):
    """The purity of a split, which orders the splits of a node as the decrease of Gini impurity or entropy does."""
    if entropy:
        return left_sum - _term(left_weight, True) + right_sum - _term(right_weight, True)
    return left_sum / left_weight + right_sum / right_weight


@kernel
def _move(c, k, moved, node_counts, class_weight, entropy):
    """Move k samples of class c from the right to the left; returns the changes of the two sums of terms."""
    left, right = class_weight[c] * moved[c], class_weight[c] * (node_counts[c] - moved[c])
    moved[c] += k
    new_left, new_right = class_weight[c] * moved[c], class_weight[c] * (node_counts[c] - moved[c])
    return _term(new_left, entropy) - _term(left, entropy), _term(new_right, entropy) - _term(right, entropy)


@kernel
def _sort_by_bin(bins, n, n_bins, end, order):
    """Fill order (n,) with the samples sorted by bin, and end (n_bins,) with where each bin ends in it."""
    end[:] = 0
    for i in range(n):
        end[bins[i]] += 1
    first = 0
    for b in range(n_bins):
        first, end[b] = first + end[b], first
    for i in range(n):
        order[end[bins[i]]] = i
        end[bins[i]] += 1


@kernel
def node_quality(node_counts, class_weight, entropy):
    """The quality of a node that is not split, which a split must exceed."""
    total, weight = 0.0, 0.0
    for c in range(class_weight.shape[0]):
        w = class_weight[c] * node_counts[c]
        total += _term(w, entropy)
        weight += w
    return total - _term(weight, True) if entropy else total / weight


@kernel
def best_cut(bins, samples, begin, n, n_bins, class_weight, node_counts, entropy, min_leaf, work):
    """The cut b of highest quality (samples with bins < b go left), as (quality, b); b = 0 if none is allowed.

    node_counts: (C,) int64, of the whole node; work: (MAX_BINS * C + MAX_BINS + S,) int32, scratch
    """
    n_classes = class_weight.shape[0]
    target, count = samples[TARGET], samples[COUNT]
    moved = np.zeros(n_classes, np.int64)
    left_sum, right_sum, left_weight, right_weight, n_left, n_right = 0.0, 0.0, 0.0, 0.0, 0, 0
    for c in range(n_classes):
        w = class_weight[c] * node_counts[c]
        right_sum += _term(w, entropy)
        right_weight += w
        n_right += node_counts[c]
    best, best_bin = -np.inf, 0

    # Large nodes are tabulated by bin and class. Small ones are sorted, since clearing the table would take longest.
    tabulate = 4 * n > n_bins * n_classes
    table, end, order = work[: n_bins * n_classes], work[:n_bins], work[n_bins : n_bins + n]
    if tabulate:
        table[:] = 0
        for i in range(n):
            s = begin + i
            table[np.uint32(bins[i]) * np.uint32(n_classes) + np.uint32(target[s])] += count[s]
    else:
        _sort_by_bin(bins, n, n_bins, end, order)

    done = 0
    for b in range(n_bins - 1):
        before = n_left
        if tabulate:
            for c in range(n_classes):
                k = table[b * n_classes + c]
                if k > 0:
                    gain, loss = _move(c, k, moved, node_counts, class_weight, entropy)
                    left_sum += gain
                    right_sum += loss
                    left_weight += class_weight[c] * k
                    n_left += k
        else:
            while done < end[b]:
                s = begin + order[done]
                c, k = target[s], count[s]
                gain, loss = _move(c, k, moved, node_counts, class_weight, entropy)
                left_sum += gain
                right_sum += loss
                left_weight += class_weight[c] * k
                n_left += k
                done += 1
        if n_left == before or n_left < min_leaf:
            continue
        if n_right - n_left < max(min_leaf, 1):
            break
        quality = _quality(left_sum, left_weight, right_sum, right_weight - left_weight, entropy)
        if quality > best:
            best, best_bin = quality, b + 1
    return best, best_bin


@kernel
def thin_out(samples, begin, n, thin, counts):
    """Fill thin (6,m) with m evenly spaced ones of the n samples from `begin`, and counts (C,) with their classes."""
    m = thin.shape[1]
    for f in range(samples.shape[0]):
        for i in range(m):
            thin[f, i] = samples[f, begin + (i * n) // m]
    counts[:] = 0
    for i in range(m):
        counts[thin[TARGET, i]] += thin[COUNT, i]


@kernel
def partition(goes_right, samples, begin, end, spare):
    """Move the samples that go left to the front of begin..end, in the same order; returns where the others begin."""
    middle = begin
    for f in range(samples.shape[0]):
        line = samples[f]
        left, right = begin, 0
        for i in range(end - begin):
            value = line[begin + i]
            if goes_right[i]:
                spare[right] = value
                right += 1
            else:
                line[left] = value
                left += 1
        line[left:end] = spare[:right]
        middle = left
    return middle


@kernel
def split_nodes(planes, samples, place, class_weight, limits, proposals, state, grown):
    """Grow a tree breadth first; returns the number of nodes.

    samples: (6,S), which are reordered; place: (S,), scratch, of an unsigned type that can number all pixels
    class_weight: (C,) float64; state: (1,) uint64, of the random generator
    """
    left_child, threshold, node_counts = grown.left_child, grown.threshold, grown.counts
    n_samples, n_classes, n_probes = samples.shape[1], class_weight.shape[0], grown.plane.shape[1]
    n_channels, entropy, search_samples = proposals.n_channels, limits.entropy, limits.search_samples
    coded = planes.codes.shape[0] > 0
    begins, ends = np.empty(left_child.shape[0], np.int64), np.empty(left_child.shape[0], np.int64)
    depths = np.zeros(left_child.shape[0], np.int64)
    bins, values = np.empty(n_samples, np.uint8), np.empty(n_samples if not coded else 0, np.float32)
    goes_right, spare = np.empty(n_samples, np.bool_), np.empty(n_samples, samples.dtype)
    thin, thin_counts = np.empty((6, min(search_samples, n_samples)), samples.dtype), np.zeros(n_classes, np.int64)
    edges, best_edges = np.empty(SAMPLED_VALUES, np.float32), np.empty(SAMPLED_VALUES, np.float32)
    work = np.empty(MAX_BINS * n_classes + MAX_BINS + n_samples, np.int32)
    channels = np.arange(N_DEPTH_CHANNELS if proposals.n_depth > 0 else 0, n_channels)
    probes = Probes(grown.plane, grown.offset, grown.weight)
    candidate = Probes(
        np.zeros((1, n_probes), np.int32), np.zeros((1, n_probes, 3), np.float32), np.zeros((1, n_probes), np.float32)
    )  # fmt: skip

    begins[0], ends[0] = 0, n_samples
    for s in range(n_samples):
        node_counts[0, samples[TARGET, s]] += samples[COUNT, s]
    n_nodes, node = 1, 0
    while node < n_nodes:
        begin, end = begins[node], ends[node]
        n, counts = end - begin, node_counts[node]
        left_child[node] = LEAF
        threshold[node] = 0.0
        probes.plane[node, :] = 0
        probes.offset[node, :, :] = 0.0
        probes.weight[node, :] = 0.0
        is_small = depths[node] == limits.max_depth or counts.sum() < limits.min_split or n < 2
        if is_small or counts.max() == counts.sum():
            node += 1
            continue

        # In a node with very many samples, the split is sought on evenly spaced ones.
        seen, seen_begin, seen_n, seen_counts, least = samples, begin, n, counts, limits.min_leaf
        if n > search_samples:
            thin_out(samples, begin, n, thin, thin_counts)
            seen, seen_begin, seen_n, seen_counts = thin, 0, search_samples, thin_counts
            least = max(1, limits.min_leaf * search_samples // n)
        whole = node_quality(seen_counts, class_weight, entropy)
        best = whole + 1e-9 * abs(whole)
        best_bin, drawn = 0, -1 if proposals.n_depth > 0 else 0
        # Channels are drawn without replacement; if none of them splits the node, the others follow.
        while drawn < len(channels) and (drawn < proposals.n_drawn or best_bin == 0):
            channel, n_tried = 0, proposals.n_depth
            if drawn >= 0:
                pick = drawn + random_below(state, len(channels) - drawn)
                channels[drawn], channels[pick] = channels[pick], channels[drawn]
                channel, n_tried = channels[drawn], proposals.n_offsets + 1
            for o in range(n_tried):
                draw_candidate(state, proposals, channel, o == 0, candidate)
                n_bins = MAX_BINS
                if coded:
                    fill_codes(planes, seen, seen_begin, seen_n, candidate, 0, place, bins)
                else:
                    fill_values(planes, seen, seen_begin, seen_n, candidate, 0, values)
                    n_bins = bin_values(values, seen_n, edges, bins)
                quality, cut = best_cut(
                    bins, seen, seen_begin, seen_n, n_bins, class_weight, seen_counts, entropy, least, work
                )
                if cut > 0 and quality > best:
                    best, best_bin = quality, cut
                    best_edges[:] = edges
                    probes.plane[node, :] = candidate.plane[0]
                    probes.offset[node, :, :] = candidate.offset[0]
                    probes.weight[node, :] = candidate.weight[0]
            drawn += 1
        if best_bin == 0:
            node += 1
            continue

        if coded:
            threshold[node] = best_bin
            fill_codes(planes, samples, begin, n, probes, node, place, bins)
            for i in range(n):
                goes_right[i] = bins[i] >= best_bin
        else:
            threshold[node] = best_edges[best_bin - 1]
            fill_values(planes, samples, begin, n, probes, node, values)
            for i in range(n):
                goes_right[i] = values[i] >= threshold[node]
        middle = partition(goes_right, samples, begin, end, spare)
        left_child[node] = n_nodes
        for side in range(2):
            child = n_nodes + side
            begins[child], ends[child] = (begin, middle) if side == 0 else (middle, end)
            depths[child] = depths[node] + 1
            for s in range(begins[child], ends[child]):
                node_counts[child, samples[TARGET, s]] += samples[COUNT, s]
        n_nodes += 2
        node += 1
    return n_nodes
