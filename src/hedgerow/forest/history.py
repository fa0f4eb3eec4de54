"""The history of a model: the images that it has seen, and how it was refined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from hedgerow.config import RefineConfig
from hedgerow.settings import limits_of

MAX_STEP = limits_of(RefineConfig, "n_steps")[1]
MAX_LOSS = 1e30
_MARK = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class Known:
    """The images that a model was made from, and those that were reserved to score it, by `LabelledImage.mark`.

    Both are unknown, and so empty, for models of 0.1.0.
    """

    seen: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()

    def with_seen(self, marks: Iterable[str]) -> Known:
        """The record once these images have been seen, too."""
        seen = dict.fromkeys([*self.seen, *marks])
        return Known(tuple(seen), tuple(mark for mark in self.reserved if mark not in seen))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record from a file; raises ValueError or TypeError if a value is impossible."""
        known = cls(**{name: tuple(marks) for name, marks in values.items()})
        if not all(isinstance(mark, str) and _MARK.fullmatch(mark) for mark in (*known.seen, *known.reserved)):
            raise ValueError("not the marks of images")
        return known


@dataclass(frozen=True)
class Check:
    """One check of a network after `step` training steps: the mean loss since the last check, and the held-out score;
    None if unknown."""

    step: int
    loss: float | None = None
    mean_dice: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The check from a file; raises ValueError or TypeError if a value is impossible."""
        check = cls(**values)
        is_known = are_numbers(check.mean_dice) and are_numbers(check.loss, low=-MAX_LOSS, high=MAX_LOSS)
        if type(check.step) is not int or not 0 <= check.step <= MAX_STEP or not is_known:
            raise ValueError("not a check")
        return check


@dataclass(frozen=True)
class Refinement:
    """The record of one refinement.

    config:   its settings, as `RefineConfig.to_dict` returns them
    checks:   in order; the first is at step 0
    stack, mapped, refined: mean Dice of the forests, and of the network before and after the refinement, on images that
              neither the forests nor the refinement saw
    n_scored: the number of these images; 0: there is no score
    """

    config: Mapping[str, Any]
    checks: tuple[Check, ...]
    stack: float | None = None
    mapped: float | None = None
    refined: float | None = None
    n_scored: int = 0

    @property
    def scores(self) -> dict[str, float]:
        """Those of stack, mapped and refined that are known. Scores from before 0.2.0 are left out: they came from
        images that the forests had seen."""
        named = {"stack": self.stack, "mapped": self.mapped, "refined": self.refined}
        return {name: score for name, score in named.items() if score is not None} if self.n_scored else {}

    def to_dict(self) -> dict[str, Any]:
        """The record, ready for JSON."""
        return {**asdict(self), "config": dict(self.config), "checks": [asdict(check) for check in self.checks]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record from what `to_dict` returned; ValueError, TypeError or KeyError if a value is impossible."""
        record = cls(**{**values, "checks": tuple(map(Check.from_dict, values["checks"]))})
        is_known = are_numbers(record.stack, record.mapped, record.refined) and type(record.n_scored) is int
        if not record.checks or not isinstance(record.config, dict) or not is_known:
            raise ValueError("not a refinement")
        return record


def are_numbers(*values: Any, low: float = 0.0, high: float = 1.0) -> bool:
    """Whether each value from a file is a number within these limits, by default those of a score, or None."""
    return all(value is None or (type(value) in (int, float) and low <= value <= high) for value in values)
