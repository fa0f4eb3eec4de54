"""Walking a forest that reads byte codes of the pixel itself, as trees grown on strokes do.

The codes of a pixel lie side by side, so that all trees read one or two lines of memory for it; a split is one word;
and what is shown, a class and probabilities in bytes, is written at once. It is `walk`, and then `argmax`.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel

BLOCK = 256  # pixels of a row


@kernel
def encode_side_by_side(values, edges, out):
    """out (N,P): the codes of values (P,N), see `codes.encode`, of edges (P,255)."""
    n_planes, n = values.shape
    for first in range(0, n, 1024):
        last = min(first + 1024, n)
        for p in range(n_planes):
            row, edge = values[p], edges[p]
            for i in range(first, last):
                value = row[i]
                code = np.uint32(0)
                step = np.uint32(128)
                for _ in range(8):
                    code += step * np.uint32(value >= edge[code + step - np.uint32(1)])
                    step >>= np.uint32(1)
                out[i, p] = np.uint8(code)


@kernel
def walk_codes(codes, top, left, root, depth, route, leaf, votes, n_classes, classes, proba):
    """Fill classes (h,w) uint8 and proba (C,h,w) uint8 for the window of codes (H,W,P) that begins at (top, left).

    route: (N,) uint64, of each node its left child (32 bits), channel (16) and code from which a pixel goes right (16);
    a leaf is its own left child, and its code is beyond all
    leaf:  (N,) uint32 row of the votes (L, >=C), none of them negative
    """
    height, width = classes.shape
    node = np.empty(BLOCK, np.uint32)
    total = np.empty((BLOCK, votes.shape[1]), np.float32)
    low = np.uint64(0xFFFF)
    for row in range(height):
        for first in range(0, width, BLOCK):
            n = min(BLOCK, width - first)
            line = codes[top + row, left + first : left + first + n]
            total[:n] = np.float32(0)
            for t in range(root.shape[0]):
                for i in range(n):
                    node[i] = root[t]
                for _ in range(depth[t]):
                    for i in range(n):
                        step = route[node[i]]
                        value = np.uint64(line[i, (step >> np.uint64(16)) & low])
                        node[i] = np.uint32(step >> np.uint64(32)) + np.uint32(value >= (step & low))
                for i in range(n):
                    ballot, box = votes[leaf[node[i]]], total[i]
                    for c in range(ballot.shape[0]):
                        box[c] += ballot[c]
            for i in range(n):
                box, best, whole = total[i], 0, total[i, 0]
                for c in range(1, n_classes):
                    whole += box[c]
                    if box[c] > box[best]:
                        best = c
                classes[row, first + i] = np.uint8(best)
                share = np.float32(255) / whole
                for c in range(n_classes):
                    box[c] = min(box[c] * share + np.float32(0.5), np.float32(255))
            for c in range(n_classes):
                out = proba[c, row, first : first + n]
                for i in range(n):
                    out[i] = np.uint8(total[i, c])
