"""The record of how a convolutional level was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from hedgerow.forest.history import are_numbers

STACK = "stack"  # the member of the ensemble that is not convolutional: the forests, or their network
ENSEMBLE = "together"  # name of the whole ensemble in the scores of a record
_HELD_OUT_PREFIX = {"images": "", "blocks": "blocks of ", "strokes": "strokes in "}


def held_out_words(held: str, n_held: int) -> str:
    """What was held out, in words, e.g. "blocks of 2 images"."""
    return f"{_HELD_OUT_PREFIX[held]}{n_held} image{'s' * (n_held != 1)}"


@dataclass(frozen=True)
class Deepening:
    """The record of a convolutional level.

    config:  its settings, as `DeepConfig.to_dict` returns them
    scores:  mean Dice of each member, and of the ensemble, on held-out images or parts of images
    held:    what was held out: "images", "blocks" or "strokes"
    n_held:  number of images that the scores come from
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    held: str = "images"
    n_held: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuilt from a file; raises ValueError or TypeError if a value is impossible."""
        record = cls(**values)
        is_fine = isinstance(record.config, dict) and isinstance(record.scores, dict)
        is_fine = is_fine and are_numbers(*record.scores.values()) and None not in record.scores.values()
        if not is_fine or record.held not in _HELD_OUT_PREFIX or type(record.n_held) is not int:
            raise ValueError("not the record of a convolutional level")
        return record
