"""A model's record of how it was refined. Networks have one, and so do the soft forests they are mapped back to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from hedgerow.config import RefineConfig, limits_of

MAX_STEP = limits_of(RefineConfig, "n_steps")[1]
MAX_LOSS = 1e30


@dataclass(frozen=True)
class Check:
    """One check of a network after `step` training steps: the mean loss since the last check, and the held-out score.

    loss, mean_dice: None if unknown
    """

    step: int
    loss: float | None = None
    mean_dice: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuilt from a file; ValueError or TypeError if a value cannot be."""
        check = cls(**values)
        is_known = are_numbers(check.mean_dice) and are_numbers(check.loss, low=-MAX_LOSS, high=MAX_LOSS)
        if type(check.step) is not int or not 0 <= check.step <= MAX_STEP or not is_known:
            raise ValueError("not a check")
        return check


@dataclass(frozen=True)
class Refinement:
    """The record of one refinement.

    config:  its settings, as `RefineConfig.to_dict` returns them
    checks:  in order; the first is at step 0
    stack, mapped, refined: mean Dice on the held-out images: the forests', the network's before, and after
    """

    config: Mapping[str, Any]
    checks: tuple[Check, ...]
    stack: float | None = None
    mapped: float | None = None
    refined: float | None = None

    @property
    def scores(self) -> dict[str, float]:
        """Whichever of stack, mapped and refined are known."""
        named = {"stack": self.stack, "mapped": self.mapped, "refined": self.refined}
        return {name: score for name, score in named.items() if score is not None}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "config": dict(self.config), "checks": [asdict(check) for check in self.checks]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuilt from what `to_dict` returned; ValueError, TypeError or KeyError if a value has the wrong type."""
        record = cls(**{**values, "checks": tuple(map(Check.from_dict, values["checks"]))})
        is_known = are_numbers(record.stack, record.mapped, record.refined)
        if not record.checks or not isinstance(record.config, dict) or not is_known:
            raise ValueError("not a refinement")
        return record


def are_numbers(*values: Any, low: float = 0.0, high: float = 1.0) -> bool:
    """Whether values from a file are numbers within these limits, at first those of a score; or None, for unknown."""
    return all(value is None or (type(value) in (int, float) and low <= value <= high) for value in values)
