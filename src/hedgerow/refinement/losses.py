"""The losses that refinement minimises."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hedgerow.images.array_checks import UNLABELLED_INDEX

PixelLoss = Callable[[Tensor, Tensor], Tensor]
"""The loss of scores (C,S) against target (S,), in which UNLABELLED_INDEX does not count."""


def cross_entropy(targets: Sequence[np.ndarray], n_classes: int) -> PixelLoss:
    """The mean over the labelled pixels; targets: those of all training images, (H,W) each"""
    return weighted(None)


def balanced(targets: Sequence[np.ndarray], n_classes: int) -> PixelLoss:
    """Cross-entropy with weights that make every class of the targets count the same."""
    return weighted(class_weights(targets, n_classes))


def class_sum(targets: Sequence[np.ndarray], n_classes: int) -> PixelLoss:
    """Cross-entropy, averaged over the pixels of each class and summed over the classes of an image: as `balanced`, but
    larger by the number of classes."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        count = torch.bincount(target[target != UNLABELLED_INDEX], minlength=n_classes).to(scores.dtype)
        weight = 1 / count.clamp(min=1)
        return functional.cross_entropy(scores.T, target, weight, ignore_index=UNLABELLED_INDEX, reduction="sum")

    return loss


def weighted(weight: Tensor | None) -> PixelLoss:
    """Cross-entropy with weights (C,) of the classes."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        here = None if weight is None else weight.to(scores.device)
        return functional.cross_entropy(scores.T, target, here, ignore_index=UNLABELLED_INDEX)

    return loss


def class_weights(targets: Sequence[np.ndarray], n_classes: int) -> Tensor:
    """(C,) weights that make every class count the same over all labelled pixels; 1 for a class that has none."""
    count = np.sum([np.bincount(target.ravel(), minlength=256)[:n_classes] for target in targets], axis=0)
    present = count > 0
    weight = np.where(present, np.sum(count) / (present.sum() * np.maximum(count, 1)), 1)
    return torch.tensor(weight, dtype=torch.float32)


def with_dice(loss: PixelLoss, scores: Tensor, target: Tensor, dice: float) -> Tensor:
    """A loss plus `dice` times the Dice loss over the labelled pixels.

    Dice loss: 1 - mean over the classes present of (2 sum(p y) + 1) / (sum p + sum y + 1)
    """
    if not dice:
        return loss(scores, target)
    labelled = target != UNLABELLED_INDEX
    proba = torch.softmax(scores[:, labelled], dim=0)
    truth = functional.one_hot(target[labelled], len(scores)).T.to(proba.dtype)
    overlap = (2 * (proba * truth).sum(1) + 1) / (proba.sum(1) + truth.sum(1) + 1)
    return loss(scores, target) + dice * (1 - overlap[truth.sum(1) > 0].mean())


def batch_loss(scores: Tensor, target: Tensor, dice: float) -> Tensor:
    """`with_dice` of the cross-entropy of scores (N,C,h,w) against target (N,h,w); 0 without labelled pixels.

    It is faster, since it does not select the labelled pixels.
    """
    labelled = target != UNLABELLED_INDEX
    classes = torch.where(labelled, target, 0)
    logs = torch.log_softmax(scores, dim=1)  # used by both losses
    of_truth = logs.gather(1, classes[:, None])[:, 0] * labelled
    loss = -of_truth.sum() / labelled.sum().clamp(min=1)
    if not dice:
        return loss
    # Sums over pixels as matrix products, so that nothing else as large as the scores is stored for the gradient.
    weight = labelled.to(scores.dtype)
    numbers = torch.arange(scores.shape[1], device=scores.device)
    truth = ((classes[:, None] == numbers[:, None, None]) & labelled[:, None]).to(scores.dtype)
    hits = torch.einsum("nchw,nhw->c", truth, of_truth.exp())
    sums, proba_sums = truth.sum(dim=(0, 2, 3)), torch.einsum("nchw,nhw->c", logs.exp(), weight)
    overlap = (2 * hits + 1) / (proba_sums + sums + 1)
    present = sums > 0
    return loss + dice * ((1 - overlap) * present).sum() / present.sum().clamp(min=1)
