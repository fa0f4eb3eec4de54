"""The base of settings: frozen, each with limits as data and a line of help; read from and written to TOML or JSON."""

from __future__ import annotations

import dataclasses
import json
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar

from hedgerow.choices import Choice, described
from hedgerow.documents import read_user_document
from hedgerow.errors import ConfigError, first_few, one_line, shown
from hedgerow.files import atomic_path
from hedgerow.model_methods import NotebookCard

Config = TypeVar("Config", bound="Checked")


def setting(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    about: str = "",
    choices: Mapping[str, Choice] | None = None,
) -> Any:
    """A field with its default, its inclusive limits (applied to each entry of a tuple) and one line of help.

    choices: the names that are allowed; they also give the help
    """
    metadata = {"low": low, "high": high, "about": about if choices is None else described(choices), "choices": choices}
    if dataclasses.is_dataclass(default):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


def limits_of(settings: type[Checked], name: str) -> tuple[Any, Any]:
    """The lowest and the highest value of a setting, also in model files."""
    metadata = settings.__dataclass_fields__[name].metadata  # type: ignore[attr-defined]
    return metadata["low"], metadata["high"]


class Checked(NotebookCard):
    """Checks every field against its annotation and limits when a settings object is made.

    Settings are dataclasses with repr=False, which gives them the short repr of this class.
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            name = f"{type(self).__name__}.{item.name}"
            value = _coerce(getattr(self, item.name), hints[item.name], name)
            _check_limits(value, item.metadata.get("low"), item.metadata.get("high"), name)
            choices = item.metadata.get("choices")
            if choices is not None and value not in choices:
                raise ConfigError(f"{name} is {shown(value)}; it must be one of {', '.join(choices)}.")
            object.__setattr__(self, item.name, value)

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        default = type(self)()
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def __repr__(self) -> str:
        """One line of Python, with the settings that differ from their defaults."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def to_dict(self) -> dict[str, Any]:
        """The settings in the form of JSON and TOML: lists for tuples, tables for nested settings."""
        return dataclasses.asdict(self, dict_factory=_with_lists)  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        if not isinstance(values, dict):
            raise ConfigError(f"{cls.__name__} needs a table of settings, got {type(values).__name__}.")
        known = {item.name for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(values) - known)
        if unknown:
            names = first_few([shown(name, 40) for name in unknown], 1)
            raise ConfigError(f"{cls.__name__} has no setting {names}; it has {', '.join(sorted(known))}.")
        return cls(**values)

    @classmethod
    def read(cls: type[Config], path: str | Path) -> Config:
        """Read settings from a .toml or .json file."""
        path = Path(path)
        try:
            return cls.from_dict(read_user_document(path))
        except ConfigError as error:
            raise ConfigError(f"in the settings file {path}: {error}") from error
        except OSError as error:
            remedy = "check its name and permissions"
            raise ConfigError(f"cannot read the settings file {path}: {one_line(error)}; {remedy}.") from error
        except ValueError as error:
            raise ConfigError(f"cannot read the settings file {path}: {one_line(error)}; correct it.") from error

    def write(self, path: str | Path) -> None:
        """Write settings to a .toml or .json file, in the form that `read` accepts."""
        as_json = Path(path).suffix.lower() == ".json"
        text = json.dumps(self.to_dict(), indent=2) + "\n" if as_json else documented_toml(self)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _with_lists(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in items}


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """The value as the type `hint`, from what JSON and TOML can hold (lists for tuples, tables for settings)."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in typing.get_args(hint):
            return None
        kinds = [h for h in typing.get_args(hint) if h is not type(None)]
        return _coerce(value, kinds[isinstance(value, list | tuple) and len(kinds) > 1], name)
    if origin is Literal:
        allowed = typing.get_args(hint)
        if not any(type(value) is type(choice) and value == choice for choice in allowed):
            raise ConfigError(f"{name} is {shown(value)}; it must be one of {', '.join(map(str, allowed))}.")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} is {shown(value)}; it must be a list.")
        return tuple(_coerce(entry, typing.get_args(hint)[0], name) for entry in value)
    if isinstance(hint, type) and issubclass(hint, Checked):
        return value if isinstance(value, hint) else hint.from_dict(value)
    if hint in (int, float) and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return _number(value, hint, name)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{name} is {shown(value)}; it must be of type {hint.__name__}.")
    return value


def _number(value: Any, hint: type, name: str) -> Any:
    """A number of any kind, including NumPy's, as an int or float of the same value."""
    if hint is int and not isinstance(value, numbers.Integral):
        raise ConfigError(f"{name} is {shown(value)}; it must be a whole number.")
    try:
        return hint(value)
    except OverflowError as error:
        raise ConfigError(f"{name} is too large for a floating-point number; give a smaller one.") from error


def _check_limits(value: Any, low: float | None, high: float | None, name: str) -> None:
    for entry in value if isinstance(value, tuple) else (value,):
        if entry is None or isinstance(entry, str | bool | Checked):
            continue
        # Written so that NaN fails as well.
        if (low is not None and not entry >= low) or (high is not None and not entry <= high):
            limits = f"from {low} to {high}" if high is not None else f"at least {low}"
            raise ConfigError(f"{name} is {shown(entry)}; it must be {limits}.")


def documented_toml(config: Checked) -> str:
    """The settings as TOML, each with its line of help; unset settings are commented out."""
    tables = [(None, config), *((f.name, getattr(config, f.name)) for f in dataclasses.fields(config))]  # type: ignore[arg-type]
    lines: list[str] = []
    for name, table in tables:
        if not isinstance(table, Checked):
            continue
        lines += ["", f"[{name}]"] if name else []
        for item in dataclasses.fields(table):  # type: ignore[arg-type]
            value = getattr(table, item.name)
            if isinstance(value, Checked):
                continue
            lines.append(f"# {item.metadata['about']}")
            lines.append(f"{item.name} = {json.dumps(value)}" if value is not None else f"# {item.name} =")
    return "\n".join(lines) + "\n"
