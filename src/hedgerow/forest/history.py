"""A model's record of how it was refined. Networks have one, and so do the soft forests they are mapped back to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Check:
    """One check of a network after `step` training steps: the mean loss since the last check, and the held-out score.

    loss, mean_dice: None if unknown
    """

    step: int
    loss: float | None = None
    mean_dice: float | None = None


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
        checks = tuple(Check(**{**check, "step": whole_number(check["step"])}) for check in values["checks"])
        record = cls(**{**values, "checks": checks})
        scores = (record.stack, record.mapped, record.refined)
        numbers = [*scores, *(number for check in checks for number in (check.loss, check.mean_dice))]
        if not checks or not isinstance(record.config, dict) or not all(map(is_score, numbers)):
            raise ValueError("not a refinement")
        return record


def is_score(value: Any) -> bool:
    """Whether a value from a file can be a score or a loss: a number, or None."""
    return value is None or type(value) in (int, float)


def whole_number(value: Any) -> int:
    """A value from a file that must be a whole number."""
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value
