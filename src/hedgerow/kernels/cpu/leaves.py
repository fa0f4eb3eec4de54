"""Sums over the samples that reach each leaf."""

from hedgerow.kernels.compiling import kernel


@kernel
def add_by_leaf(leaf, planes, sums):
    """sums[c, leaf[i]] += planes[c, i]: leaf (n,), planes (C,n), sums (C,L) float64; samples in their order."""
    for c in range(planes.shape[0]):
        for i in range(leaf.shape[0]):
            sums[c, leaf[i]] += planes[c, i]
