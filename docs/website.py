"""What the site has beside the pages in this folder: pages from other folders, and a reference made from the code."""

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
import typer
from mkdocs.structure.files import File, Files

import hedgerow
from hedgerow.cli.app import app

ROOT = Path(__file__).parents[1]
# Page of the site -> file in the repository.
FROM_ELSEWHERE = {
    "index.md": "README.md",
    "changes.md": "CHANGES.md",
    "benchmarks.md": "benchmarks/RESULTS.md",
}
PAGE_OF = {path: page for page, path in FROM_ELSEWHERE.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in this folder."""
    pages = {page: (ROOT / path).read_text(encoding="utf-8") for page, path in FROM_ELSEWHERE.items()}
    pages |= {"commands.md": commands(), "reference.md": reference()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links lead to pages of the site; what is not part of it is named without a link."""
    path = FROM_ELSEWHERE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    link = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
    return link.sub(lambda match: _link(path, page.file.src_uri, *match.groups()), markdown)


def _link(path: str, page: str, mark: str, text: str, target: str, anchor: str | None) -> str:
    """A link on a page, whose file in the repository is `path`, as the site has it."""
    aim = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    on_site = PAGE_OF.get(aim) or (aim.removeprefix("docs/") if aim.startswith("docs/") else None)
    if on_site is None:
        return text
    return f"{mark}[{text}]({posixpath.relpath(on_site, posixpath.dirname(page) or '.')}{anchor or ''})"


def commands() -> str:
    """The help of every command."""
    program: Any = typer.main.get_command(app)
    shown = []
    for name, command in program.commands.items():
        context = command.context_class(command, info_name=f"hedgerow {name}", terminal_width=84, max_content_width=84)
        shown.append(f"## hedgerow {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(["# Commands\n", *shown])


def reference() -> str:
    """The public names of the package."""
    names = [name for name in hedgerow.__all__ if name != "synthetic"]
    return "\n".join(["# Python\n", *(f"::: hedgerow.{name}\n" for name in names)])


class AsMarkdown(griffe.Extension):
    """Our docstrings as Markdown: a line such as "name: meaning" begins an item of a list, and examples are code."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every object whose documentation is read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        if line.startswith(">>> ") and not in_code:
            lines += ["", "```pycon"]
            in_code = True
        elif in_code and not line.strip():
            lines.append("```")
            in_code = False
        argument = None if in_code else re.match(r"([a-z_]+(?:, [a-z_]+)*): +(.*)", line)
        lines.append(f"\n- `{argument[1]}`: {argument[2]}" if argument else line if in_code else line.strip())
    return "\n".join([*lines, "```"] if in_code else lines)
