"""Numbers, names and settings as the page shows them."""

import math
import platform
from collections.abc import Iterator, Mapping
from typing import Any

from hedgerow import __version__
from hedgerow.predict.devices import version
from hedgerow.threads import get_threads

PACKAGES = ("numpy", "numba", "torch")


def cell(value: str | float | int | None) -> str:
    """A value of a table: floats with three decimals, nothing as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def signed(value: float) -> str:
    """A difference of scores, with a real minus sign; what rounds to nothing has none."""
    text = f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")
    return "0.000" if text[1:] == "0.000" else text


def percent(part: float) -> str:
    """A part of one, as short as it is exact."""
    return f"{100 * part:.4g} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}" if seconds >= 0.01 else f"{1000 * seconds:.1f}"


def duration(seconds: float) -> str:
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


def shortened(name: str, most: int) -> str:
    """A name of at most so many letters, cut in the middle: endings often tell names apart."""
    if len(name) <= most:
        return name
    kept = most - 1
    return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def settings_rows(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as lines: ("sampling.step", "2")."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from settings_rows(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", _setting(value)


def _setting(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_setting(one) for one in value) or "none"
    return str(value) or "–"


def versions() -> dict[str, str]:
    """What made the page; neither the machine's name nor any place on it."""
    found = {"hedgerow": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        installed = version(package)
        if installed is not None:
            found[package] = installed
    return found | {"platform": f"{platform.system()} {platform.machine()}", "threads": str(get_threads())}
