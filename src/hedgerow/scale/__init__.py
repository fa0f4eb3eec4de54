"""Images larger than memory, and work for more than one machine: read lazily, computed shard by shard, resumed."""

from hedgerow.lazy import attach

# Each module is loaded when it is first used, so that importing this package is instant.
_HOMES = {
    "evaluate": "evaluating",
    "predict_batch": "batches",
    "predict_large": "predicting",
    "report": "reporting",
    "train": "training",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = attach("hedgerow.scale", _HOMES)
