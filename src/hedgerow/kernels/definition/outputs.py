"""What follows the summed votes of a level, in plain NumPy: normalisation, or softmax."""

import numpy as np

SMALLEST_SUM = 1e-6  # of scores that are divided by their sum; what is summed is of the order of one vote
CANCELLED = 0.1  # part of the sum of the scores' sizes that their sum counts as, at least


def softmax(scores: np.ndarray) -> np.ndarray:
    """Summed votes (C,...) to class probabilities, as the network's last layer does."""
    grown = np.exp(scores - scores.max(axis=0))
    return grown / grown.sum(axis=0)


def normalise(scores: np.ndarray) -> np.ndarray:
    """Summed votes (C,...) to class probabilities, sum one: votes divided by their sum; uniform without any vote.

    Votes refined by a network can be negative and cancel. So the divisor is at least a tenth of the sum of their sizes
    (results stay within about 10), and what the sum then lacks to one is shared out evenly. `level.normalise` is the
    same function for the network.
    """
    total, sizes = np.zeros_like(scores[0]), np.zeros_like(scores[0])
    for plane in scores:
        total = total + plane
        sizes = sizes + np.abs(plane)
    real = scores.dtype.type
    divisor = np.maximum(np.maximum(total, real(CANCELLED) * sizes), real(SMALLEST_SUM))
    lacking = (1 - total / divisor) / real(len(scores))
    return (scores / divisor + lacking).astype(scores.dtype)
