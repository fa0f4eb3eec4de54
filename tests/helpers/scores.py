"""Scores of label maps and predictions in memory."""

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.array_checks import encode_labels, filled_labels, to_labels
from hedgerow.images.metrics import Scores, confusion


def scores(truths, predictions, classes, unlabelled=255):
    """Compare label maps with predictions, both lists of class values (H,W), over all images together."""
    if len(truths) != len(predictions):
        raise InputError(f"there are {len(truths)} label maps but {len(predictions)} predictions; expected one each")
    total = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for number, (truth, predicted) in enumerate(zip(truths, predictions, strict=True), start=1):
        true_name, predicted_name = f"label map {number}", f"prediction {number}"
        truth, predicted = to_labels(filled_labels(truth, unlabelled), true_name), to_labels(predicted, predicted_name)
        true_indices = encode_labels(truth, classes, unlabelled, true_name)
        predicted_indices = encode_labels(predicted, classes, None, predicted_name)
        total += confusion(true_indices, predicted_indices, len(classes))
    return Scores(tuple(int(value) for value in classes), total)
