"""Numbers on which several kernels agree; plain Python, from which each room derives what its compiler wants."""

LEAF = -1  # left child of a node that does not split
UNUSED = -1  # number of a neuron or of a place that is not there

HARD, TANH, SOFT, CRELU = range(4)
SPLIT_KINDS = {"hard": HARD, "tanh": TANH, "soft": SOFT, "crelu": CRELU}

SMALLEST_CARRY = 1e-30  # what a branch must carry to be felt in float32 at all; smaller numbers only cost time

# Kernels work through a tree in pieces, each the generations below a node. What suits a processor's cache is more than
# fits the registers of a GPU.
CPU_GENERATIONS = 6
GPU_GENERATIONS = 4
EXITS = 2**GPU_GENERATIONS  # at the foot of a piece on a GPU

# Gradients are summed in so many parts, whatever the number of threads: the same sums in the same order.
GRADIENT_PARTS = 8

# A plane in `Reads.planes` that is never read: start, height, width, top, left, step.
NO_PLANE = (UNUSED, 1, 1, 0, 0, 1)
