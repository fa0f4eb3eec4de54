"""Names of a package that are loaded on first use, so that importing the package is instant."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package; homes: name -> the submodule that defines it ("": it is one)."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not homes[name]:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return find, lambda: sorted(homes)
