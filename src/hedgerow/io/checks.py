"""Checks on the values of a model file: an impossible value is refused in one sentence."""

from contextlib import suppress
from numbers import Integral
from typing import Any

import numpy as np

from hedgerow.errors import DAMAGED, ModelError, refuse_unless
from hedgerow.forest.history import Known, Refinement

INT32 = np.iinfo(np.int32)


def refinements(values: Any) -> tuple[Refinement, ...]:
    """The refinement records of a file; raises ModelError unless they are valid."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        if isinstance(values, list):
            return tuple(Refinement.from_dict(value) for value in values)
    raise ModelError(f"its history is not a list of refinements, {DAMAGED}.")


def known(values: Any) -> Known:
    """The images that the model of a file has seen; raises ModelError unless the record is valid."""
    with suppress(ValueError, TypeError, AttributeError):
        return Known.from_dict(values)
    raise ModelError(f"its record of images is not valid, {DAMAGED}.")


def whole(value: Any, low: int, high: int, entry: str) -> int:
    refuse_unless(type(value) is int and low <= value <= high, f"its {entry} is out of range")
    return int(value)


def choice(value: Any, known: tuple[str, ...], entry: str) -> str:
    refuse_unless(isinstance(value, str) and value in known, f"its {entry} is unknown")
    return str(value)


def flag(value: Any, entry: str) -> bool:
    refuse_unless(type(value) is bool, f"its {entry} is not true or false")
    return bool(value)


def number(value: Any, entry: str) -> float:
    refuse_unless(type(value) in (int, float), f"its {entry} is not a number")
    return float(value)


def short_text(value: Any, entry: str) -> str:
    refuse_unless(isinstance(value, str) and len(value) <= 20 and value.isprintable(), f"its {entry} is not a name")
    return str(value)


def table(value: Any, entry: str) -> dict[str, Any]:
    refuse_unless(isinstance(value, dict), f"its {entry} is not a table")
    return dict(value)


def plain(value: Any) -> Any:
    """A whole number of NumPy as Python's; anything else unchanged, for the checks of a file to refuse."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def narrowest(array: np.ndarray) -> np.ndarray:
    """The same values in the smallest type that holds all of them exactly."""
    for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.float16, np.int32, np.float32):
        small = _cast(array, dtype)
        if small is not None and not np.signbit(array[array == 0]).any():
            return np.ascontiguousarray(small)
    return np.ascontiguousarray(array)


def widened(array: np.ndarray, dtype: type) -> np.ndarray:
    """The same values in the type that the model works with."""
    wide = _cast(array, dtype)
    refuse_unless(wide is not None, "an array has impossible values")
    return array if wide is None else wide


def _cast(array: np.ndarray, dtype: type) -> np.ndarray | None:
    """The array in another type, or None if that changes a value; a NaN counts as changed."""
    with np.errstate(all="ignore"):
        cast: np.ndarray = array.astype(dtype)
        return cast if np.array_equal(cast.astype(array.dtype), array) else None
