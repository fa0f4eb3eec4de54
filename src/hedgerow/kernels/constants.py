"""Numbers that several kernels share, in plain Python; each package converts them for its compiler."""

LEAF = -1  # left child of a node that does not split
UNUSED = -1  # in place of the number of a neuron or of a value, if there is none

HARD, TANH, SOFT, CRELU = range(4)
SPLIT_KINDS = {"hard": HARD, "tanh": TANH, "soft": SOFT, "crelu": CRELU}

SMALLEST_CARRY = 1e-30  # branches that carry less do not change a float32 sum; they only take time

# Kernels process a tree in pieces of so many generations. The cache of a CPU holds more than the registers of a GPU.
CPU_GENERATIONS = 6
GPU_GENERATIONS = 4
EXITS = 2**GPU_GENERATIONS  # nodes at the foot of a piece on a GPU

# The parts that gradients are summed in, whatever the number of threads, so that the sums are always the same.
GRADIENT_PARTS = 8

# A row of `Reads.planes` for a plane that is never read: start, height, width, top, left, step.
NO_PLANE = (UNUSED, 1, 1, 0, 0, 1)
