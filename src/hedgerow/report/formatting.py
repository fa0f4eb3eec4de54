"""Numbers, lists and settings as text, for the page and the cards of notebooks."""

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hedgerow import __version__
from hedgerow.predict.devices import version
from hedgerow.threads import get_threads


def cell(value: str | float | int | None) -> str:
    """A value in a table: floats with three decimals, a missing value as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | str):
        return str(value) or "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def signed(value: float) -> str:
    """A difference of scores with its sign (a true minus sign); one that rounds to zero has none."""
    text = f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")
    return "0.000" if text[1:] == "0.000" else text


def percent(fraction: float, digits: int | None = None) -> str:
    """A fraction as a percentage, e.g. "12.5 %", with this number of decimals; None: four significant digits."""
    return f"{100 * fraction:.4g} %" if digits is None else f"{100 * fraction:.{digits}f} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}" if seconds >= 0.01 else f"{1000 * seconds:.1f}"


def shortened(name: str, max_length: int) -> str:
    """A name cut to this length in the middle, because names often differ only at their end."""
    if len(name) <= max_length:
        return name
    n_end = (max_length - 1) // 2
    return f"{name[: max_length - 1 - n_end]}…{name[len(name) - n_end :]}"


def counted(n: int, singular: str, plural: str | None = None) -> str:
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def joined_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def settings_rows(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as (name, value) rows: ("sampling.step", "2")."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from settings_rows(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", setting_text(value)


def setting_text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value)) or "none"
    return str(value) or "–"


def versions() -> dict[str, str]:
    """Versions of the software that wrote the page; neither the machine's name nor any path on it."""
    installed = {package: version(package) for package in ("numpy", "numba", "torch")}
    return {
        "hedgerow": __version__,
        "Python": platform.python_version(),
        **{package: text for package, text in installed.items() if text is not None},
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": str(get_threads()),
    }
