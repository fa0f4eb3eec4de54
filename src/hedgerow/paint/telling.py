"""What those who compute may ask of the worker they run in."""

from __future__ import annotations

from typing import Any, Protocol

from hedgerow.images.regions import Region
from hedgerow.paint.results import Result


class Teller(Protocol):
    """Passes on what was computed, and says whether there is something more urgent."""

    def tell(self, message: dict[str, Any]) -> None:
        """Say something to all windows."""

    def progress(self, job: str, text: str, done: int, total: int, began: float) -> None:
        """Say how far work is. began: by the monotonic clock"""

    def show(self, result: Result, region: Region | None, seconds: float) -> None:
        """Keep a result, and say that its tiles can be asked for. region: where it is new; None: everywhere"""

    def newest(self, image: int) -> Result | None: ...

    def has_news(self) -> bool:
        """Whether something waits that comes before all but what is on the screen."""
        ...
