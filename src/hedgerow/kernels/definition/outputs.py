"""The functions that make class probabilities of a level's summed votes, in plain NumPy."""

import numpy as np

SMALLEST_SUM = 1e-6  # least divisor of scores, which are of the order of one vote
CANCELLED = 0.1  # least divisor, as a part of the sum of the scores' absolute values


def softmax(scores: np.ndarray) -> np.ndarray:
    """Class probabilities from summed votes (C,...), as in the network's last layer."""
    grown = np.exp(scores - scores.max(axis=0))
    return grown / grown.sum(axis=0)


def normalise(scores: np.ndarray) -> np.ndarray:
    """Class probabilities from summed votes (C,...): votes divided by their sum, or uniform ones without votes.

    Votes refined by a network can be negative and cancel. So the divisor is at least a tenth of the sum of their
    absolute values (results stay within about 10), and the rest of the sum to one is divided evenly among the classes.
    `level.normalise` is the same function for the network.
    """
    total, sizes = np.zeros_like(scores[0]), np.zeros_like(scores[0])
    for plane in scores:
        total = total + plane
        sizes = sizes + np.abs(plane)
    real = scores.dtype.type
    divisor = np.maximum(np.maximum(total, real(CANCELLED) * sizes), real(SMALLEST_SUM))
    lacking = (1 - total / divisor) / real(len(scores))
    return (scores / divisor + lacking).astype(scores.dtype)
