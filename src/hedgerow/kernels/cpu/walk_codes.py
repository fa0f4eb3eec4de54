"""Walking a forest whose splits read byte codes of the pixel itself, as trees grown on strokes do.

Codes lie in squares of 16 x 16 pixels, all codes of one feature together. A square descends a tree as a whole: at a
split, one comparison of 256 bytes tells which of its pixels go right, and a branch that none of them takes is not
visited. Neighbours mostly go the same way, so few nodes are visited. Where they do not, as in noise or in a large tree,
each pixel descends alone instead, in as many steps as the tree is deep. Both ways give the same result: that of `walk`
and `argmax`, with the class and the probabilities in bytes.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.cpu.plane_ops import code_of

SIDE = 16  # pixels along each side of a square
SQUARE = SIDE * SIDE
MAX_SQUARE_NODES = 100  # if a square visits more nodes of a tree, walking its pixels alone is faster
SQUARES_UNTIL_RETRY = 16  # squares after which whole squares are tried again for a tree


@kernel
def encode_squares(values, edges, first, end, out):
    """Fill rows first..end of out (n,m,P,SQUARE) with the codes of values (P,h,w) for edges (P,255); elsewhere 0."""
    n_planes, height, width = values.shape
    for r in range(first, end):
        for q in range(out.shape[1]):
            for p in range(n_planes):
                edge, line = edges[p], out[r, q, p]
                line[:] = np.uint8(0)
                for i in range(min(SIDE, height - r * SIDE)):
                    row = values[p, r * SIDE + i]
                    for j in range(min(SIDE, width - q * SIDE)):
                        line[i * SIDE + j] = code_of(row[q * SIDE + j], edge)


@kernel_part
def part_ways(here, right, line, cut):
    """Move the pixels that go right from mask `here` to mask `right`; returns whether any stay, and whether any go.

    here, right: (SQUARE,) uint8, 255 or 0; line: (SQUARE,) codes; cut: the code from which a pixel goes right
    """
    stays, goes = np.uint8(0), np.uint8(0)
    for i in range(SQUARE):
        go = here[i] if line[i] >= cut else np.uint8(0)
        stay = np.uint8(here[i] ^ go)
        right[i] = go
        here[i] = stay
        goes = max(goes, go)
        stays = max(stays, stay)
    return stays > 0, goes > 0


@kernel_part
def add_vote(box, mask, vote):
    for i in range(SQUARE):
        box[i] += vote if mask[i] else np.float32(0)


@kernel_part
def walk_together(codes, root, channel, cut, left, leaf, votes, mask, at, total):
    """Add a tree's votes to total (C,SQUARE), for all pixels of codes (P,SQUARE) at once; returns the nodes visited.

    mask: (depth+2,SQUARE) uint8, at: (depth+2,) int64, room for branches that wait to be visited
    """
    mask[0] = np.uint8(255)
    at[0] = root
    top, visited = 0, 0
    while top >= 0:
        node = at[top]
        visited += 1
        if left[node] < 0:
            ballot = votes[leaf[node]]
            for c in range(total.shape[0]):
                if ballot[c] != 0:
                    add_vote(total[c], mask[top], ballot[c])
            top -= 1
            continue
        stays, goes = part_ways(mask[top], mask[top + 1], codes[channel[node]], cut[node])
        at[top] = left[node]
        if not stays:
            at[top] += 1
            for i in range(SQUARE):
                mask[top, i] = mask[top + 1, i]
        elif goes:
            top += 1
            at[top] = left[node] + 1
    return visited


@kernel_part
def walk_alone(codes, root, depth, channel, cut, left, leaf, votes, node, total):
    """As `walk_together`, but each pixel alone; node: (SQUARE,) uint32, room for the nodes of the pixels"""
    for i in range(SQUARE):
        node[i] = root
    for _ in range(depth):
        for i in range(SQUARE):
            here = node[i]
            child = left[here]
            step = np.uint32(child) + np.uint32(codes[np.uint32(channel[here]), i] >= cut[here])
            node[i] = step if child >= 0 else here
    for i in range(SQUARE):
        ballot = votes[leaf[node[i]]]
        for c in range(total.shape[0]):
            total[c, i] += ballot[c]


@kernel
def walk_squares(codes, top, left_edge, root, depth, channel, cut, left, leaf, votes, classes, proba):
    """Fill classes (n,m,SQUARE) and proba (C,n,m,SQUARE) uint8 for the squares of codes (N,M,P,SQUARE) from one on.

    root, depth: (T,) of the trees; channel, left: (N,) int32, left is negative at a leaf; cut: (N,) uint8, the lowest
    code that goes right; leaf: (N,) int32, row of the votes (L,C) float32, which are not negative
    """
    n_classes = proba.shape[0]
    most = depth.max() + 2
    mask, at = np.empty((most, SQUARE), np.uint8), np.empty(most, np.int64)
    node = np.empty(SQUARE, np.uint32)
    total = np.empty((n_classes, SQUARE), np.float32)
    best, share = np.empty(SQUARE, np.float32), np.empty(SQUARE, np.float32)
    alone = np.zeros(root.shape[0], np.int64)  # squares whose pixels are still to walk a tree alone
    for r in range(classes.shape[0]):
        for q in range(classes.shape[1]):
            here = codes[top + r, left_edge + q]
            total[:] = np.float32(0)
            for t in range(root.shape[0]):
                if alone[t] > 0:
                    alone[t] -= 1
                    walk_alone(here, root[t], depth[t], channel, cut, left, leaf, votes, node, total)
                elif walk_together(here, root[t], channel, cut, left, leaf, votes, mask, at, total) > MAX_SQUARE_NODES:
                    alone[t] = SQUARES_UNTIL_RETRY
            winner = classes[r, q]
            winner[:] = np.uint8(0)
            best[:] = total[0]
            share[:] = total[0]
            for c in range(1, n_classes):
                box = total[c]
                for i in range(SQUARE):
                    share[i] += box[i]
                    if box[i] > best[i]:
                        best[i] = box[i]
                        winner[i] = np.uint8(c)
            for i in range(SQUARE):
                share[i] = np.float32(255) / share[i]
            for c in range(n_classes):
                box, out = total[c], proba[c, r, q]
                for i in range(SQUARE):
                    out[i] = np.uint8(min(box[i] * share[i] + np.float32(0.5), np.float32(255)))
