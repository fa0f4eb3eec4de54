"""How commands are called: help with groups of options, and usage errors in one sentence.

Some versions of Typer contain their own copy of Click and others do not, so Click's classes are reached through Typer.
"""

import difflib
import inspect
import re
import types
from collections.abc import Iterable
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from hedgerow.errors import HedgerowError

UsageError: type[Any] = typer.BadParameter.__mro__[1]
FIRST_COLUMN = 24  # after a longer name, the explanation begins on the next line
# Groups of options.
READING_HEADING = "Images and labels"
OBJECTS_HEADING = "Objects"
MORE_HEADING = "More options"
COMMON_HEADING = "Common to all commands"
LARGE_HEADING = "Large images and several machines"
reading_option: Any = partial(typer.Option, rich_help_panel=READING_HEADING)
object_option: Any = partial(typer.Option, rich_help_panel=OBJECTS_HEADING)
more_option: Any = partial(typer.Option, rich_help_panel=MORE_HEADING)
common_option: Any = partial(typer.Option, rich_help_panel=COMMON_HEADING)
large_option: Any = partial(typer.Option, rich_help_panel=LARGE_HEADING)
NUMBER_WORDS = {int: "a whole number", float: "a number"}
VALUES = {"<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<str>": "TEXT", "<path>": "FILE"}  # in help
LOWEST = re.compile(r"  \[x>=\d+\]|; x>=\d+(?=\])")  # the lowest value; help leaves it out, errors name it


class Misuse(HedgerowError):
    """Wrong arguments or options of a command."""


class _InSentences:
    """Describes usage errors in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        all_args = list(args)
        try:
            return super().parse_args(ctx, with_lone_values(self, args))  # type: ignore[misc]
        except UsageError as error:
            if not all_args and isinstance(self, Program):
                raise  # its help is shown
            raise Misuse(f"{sentence(error, ctx, all_args)}; see {ctx.command_path} --help.") from error


class Command(_InSentences, TyperCommand):
    """A command of the program."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """MODEL IMAGES..., then all optional arguments in one pair of brackets."""
        arguments = [param for param in self.get_params(ctx) if _is_argument(param)]
        optional = " ".join(_piece(param) for param in arguments if not param.required)
        required = [_piece(param) for param in arguments if param.required]
        return ["[OPTIONS]", *required, *([f"[{optional}]"] if optional else [])]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then the groups of options; the options of all commands come last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            name = re.sub("<[a-z ]+>", lambda value: VALUES.get(value[0], value[0]), record[0])
            text = LOWEST.sub("", record[1])
            if _is_argument(param):
                group, text = "Arguments", text.removesuffix("  [required]")
                name = _piece(param) if param.required else f"[{_piece(param)}]"
            else:
                own = getattr(param, "rich_help_panel", None) or "Options"
                group = COMMON_HEADING if "--help" in param.opts else own
            groups.setdefault(group, []).append((name, text))
        for last in (READING_HEADING, LARGE_HEADING, MORE_HEADING, COMMON_HEADING):
            groups[last] = groups.pop(last, [])
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records, col_max=FIRST_COLUMN)


class Program(_InSentences, TyperGroup):
    """The program with its commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.commands, 1)
            remedy = f"did you mean {near[0]}? {ctx.command_path} --help" if near else f"{ctx.command_path} --help"
            raise Misuse(f"there is no command {name!r}; {remedy} lists them all.")
        return super().resolve_command(ctx, args)


def in_short(command: Any) -> str:
    """The first clause of a command's help, for the list of commands."""
    return re.split(r"[:;]\s", inspect.getdoc(command).splitlines()[0])[0].rstrip(".") + "."  # type: ignore[union-attr]


ALL = "all"
LONE_VALUES = {"--json": "-", "--objects": ALL, "--fill-holes": str(10**9)}
"""Options that may stand without a value, with the value that they mean then: the terminal, all classes, any hole."""


def with_lone_values(command: Any, args: list[str]) -> list[str]:
    """The arguments; where an option of LONE_VALUES stands without a value, its meaning is inserted."""
    known = {name for param in command.params if not getattr(param, "is_flag", False) for name in param.opts}
    filled: list[str] = []
    for here, after in zip_longest(args, args[1:]):
        filled.append(here)
        if here in LONE_VALUES and here in known and (after is None or re.match("-.", after)):
            filled.append(LONE_VALUES[here])
    return filled


def sentence(error: Any, ctx: Any, args: list[str]) -> str:
    """What is wrong with the arguments; if some are missing, with an example."""
    command: Any = ctx.command
    param: Any = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and param is not None:
        needed = [
            option for option in command.params if option.required and _is_argument(option) == _is_argument(param)
        ]
        example = re.search(r"^ *Example: (.*)$", command.help or "", re.MULTILINE)
        remedy = f"; for example, {example[1]}" if example else ""
        return f"{ctx.info_name} needs {_listed([_name(option) for option in needed], 'and')}{remedy}"
    if type(error).__name__ == "NoSuchOption":
        near = difflib.get_close_matches(error.option_name, [o for option in command.params for o in option.opts], 1)
        return f"there is no option {error.option_name}" + (f" (did you mean {near[0]}?)" if near else "")
    expected = None if param is None else _expected(command.callback, param.name)
    if expected is not None:
        value = _value_of(param.opts, args)
        name = "the argument" if _name(param) == expected else _name(param)
        return f"{name} must be {expected}" + (f", not {value!r}" if value is not None else "")
    text = " ".join(error.format_message().split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"


def _name(param: Any) -> str:
    """The name of an argument or option in messages."""
    return param.metavar or param.name.upper() if _is_argument(param) else max(param.opts, key=len)


def _piece(argument: Any) -> str:
    """An argument in the usage line, e.g. MODEL or IMAGES..."""
    return _name(argument) + ("..." if argument.nargs == -1 else "")


def _listed(names: Iterable[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def _expected(function: Any, name: str) -> str | None:
    """The values that a parameter accepts, from its annotation; None if the annotation does not restrict them."""
    annotation = inspect.signature(function).parameters[name].annotation
    hint, *about = get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation,)
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(item for item in get_args(hint) if item is not type(None))
    if get_origin(hint) is list:
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return _listed(get_args(hint), "or")
    if hint not in NUMBER_WORDS:
        return None
    lowest = next((item.min for item in about if getattr(item, "min", None) is not None), None)
    return NUMBER_WORDS[hint] + (f" of at least {lowest}" if lowest is not None else "")


def _value_of(names: Iterable[str], args: list[str]) -> str | None:
    """The value given for an option."""
    for here, after in zip_longest(args, args[1:]):
        for name in names:
            if here == name:
                return after
            if here.startswith(f"{name}="):
                return here.partition("=")[2]
    return None
