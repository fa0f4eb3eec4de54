"""The files of the page: small, complete, and within its strict content policy. Needs no browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import hedgerow

STATIC = Path(hedgerow.__file__).parent / "paint" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
NAMESPACE = "http://www.w3.org/2000/svg"


def named(path):
    return str(path.relative_to(STATIC))


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


TAGS = Tags((STATIC / "index.html").read_text(encoding="utf-8")).tags


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_file_is_long_and_none_asks_elsewhere(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert not re.findall(r"https?://[^\s\"'`]+", text.replace(NAMESPACE, ""))


def test_there_is_nothing_inline():
    for tag, attributes in TAGS:
        assert "style" not in attributes, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert tag != "style"
        if tag == "script":
            assert attributes["src"].startswith("static/")


def test_what_the_page_names_is_there():
    known = {f"static/{named(path)}" for path in FILES}
    links = [attributes.get("src") or attributes.get("href") for _, attributes in TAGS]
    links = [link.partition("#")[0] for link in links if link and link.startswith("static/")]
    assert links
    assert set(links) <= known
    icons = set(re.findall(r'<symbol id="i-([\w-]+)"', (STATIC / "icons.svg").read_text(encoding="utf-8")))
    used = {attributes["href"].partition("#i-")[2] for tag, attributes in TAGS if tag == "use"}
    for path in SCRIPTS:
        used |= set(re.findall(r'\bicon\("([\w-]+)"\)', path.read_text(encoding="utf-8")))
    assert used <= icons


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_imports_are_of_files_that_are_there(path):
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r'^import .*?from "(.+?)";', text, flags=re.MULTILINE | re.DOTALL):
        assert (path.parent / name).resolve().is_file(), name
    assert "innerHTML" not in text
    assert "eval(" not in text


def test_ids_are_given_once():
    ids = [attributes["id"] for _, attributes in TAGS if "id" in attributes]
    assert len(ids) == len(set(ids))
