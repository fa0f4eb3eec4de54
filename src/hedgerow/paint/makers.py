"""Who makes the models and files that a page asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hedgerow import jobs
from hedgerow.jobs.training import Trained

LARGE = 2**26  # pixels of an image: one with more is never held as a whole
MUCH = 2**27  # pixels of all painted images: with more, they are not held together


@dataclass(frozen=True)
class Makers:
    """What the command line makes models and files with, handed in by it: so the page makes the same.

    train, report: as in `jobs`; they may also take images larger than memory
    predict_large: writes labels and maps of one such image into files; None: such images are left out
    """

    train: Callable[..., Trained] = jobs.train
    report: Callable[..., int] = jobs.report
    predict_large: Callable[..., Any] | None = None
