"""Projects of the page to paint on: journals with right checksums and wrong entries, project files, locks, labels."""

import json
import re
import zlib
from contextlib import suppress

import numpy as np

from fuzz import special
from fuzz.damage import damaged
from fuzz.outcomes import require
from fuzz.values import change, pick
from hedgerow.errors import HedgerowError
from hedgerow.images.writing import write_labels
from hedgerow.paint.exports import write_label_maps
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import PageModel

SIZE = (300, 270)
WORDS = (
    *(
        "a0.png",
        "a1.png",
        "gone.png",
        "../a0.png",
        "brush",
        "eraser",
        "line",
        "polygon",
        "fill",
        "paint",
        "undo",
        "redo",
    ),
    *("class", "s1", "s2", "do", "image", "points", "radius", "within", "joins", "locked", "at", "#4477aa", "=1+1"),
)
# What belongs to somebody else, and must be as it was afterwards.
FOREIGN = (
    *(b"", b"\n", b"my notes\n", b'{"a": 1}\n{"b": 2}\n', b"my notes", b"a\nb\nc\n", b"\xff\xfe" * 50, b"\0" * 4096),
    *(b'{"hedgerow": "what was painted", "version": 1}\n', b"0" * 100_000),
)
SEPARATORS = (b"\r\n", b"\r", b"\x0b", b"\x0c", b"\x1c", b"\n\n", b"", b" \n")


class Projects:
    """Makes and uses projects. base: the folder of a whole one"""

    name = "projects"

    def __init__(self, folder):
        pictures = folder / "pictures"
        pictures.mkdir()
        for i in range(2):
            write_labels(pictures / f"a{i}.png", np.full(SIZE, 40 * i, np.uint8))
        self.images = image_files(str(pictures))[0]
        self.base = folder / "base"
        project = Project(self.base, self.images)
        for message in strokes():
            project.paint(message)
        project.undo_or_redo("undo")
        project.change_class({"name": "third", "colour": "#aabbcc"})
        project.change_class({"id": 0, "locked": True})
        for number in (1, 2):
            model = project.model_file(number)
            model.parent.mkdir(exist_ok=True)
            model.write_bytes(b"nobody loads it here")
            project.add_model(PageModel(number, "train", "forest", "not scored", project.paint_state))
        write_label_maps(project)
        project.close()
        _forget_time(self.base)
        (folder / "case").mkdir()
        special.copy(self.base, folder / "case" / "whole")
        self.use(folder / "case" / "whole")  # which also loads what the worker needs, before its memory is limited

    def write(self, rng, folder):
        """The folder of a case, and what was done to it."""
        path = folder / "project"
        special.copy(self.base, path)
        return path, ", ".join(_change(path, rng) for _ in range(int(pick(rng, (1, 1, 2)))))

    def use(self, path):
        """Open, paint, write label maps; what was painted is there when it is opened again, and nothing is lost."""
        again = path.with_name("again")
        special.copy(path, again)
        before = {file: file.read_bytes() for file in special.plain_files(again)}
        try:
            result = self._painted(again)
        except HedgerowError:
            for file, content in before.items():
                is_same = special.is_plain(file) and file.read_bytes() == content
                require(is_same or _is_our_lock(file, content), "a file of a refused project changed", file.name)
            raise
        require(self._opened(again) == result, "other paint after opening it again")
        foreign = [content for content in before.values() if content in FOREIGN]
        for content in (before.get(again / "journal.jsonl", b""), *foreign):
            _require_kept(content, again)

    def _painted(self, folder):
        """What is painted after one more stroke."""
        project = Project(folder, self.images)
        try:
            if project.classes:
                stroke = {"do": "paint", "id": "new", "image": 1, "tool": "brush", "class": project.classes[0].id}
                project.paint(stroke | {"radius": 2.0, "points": [[5.0, 5.0], [20.0, 9.0]]})
            result = _paint(project)
            _check_classes(project.classes)
            with suppress(HedgerowError):  # for a map of somebody else, for example
                write_label_maps(project)
            return result
        finally:
            project.close()

    def _opened(self, folder):
        project = Project(folder, self.images)
        try:
            return _paint(project)
        finally:
            project.close()


def _forget_time(folder):
    """Without times and numbers of processes, the same project is the same files."""
    journal = folder / "journal.jsonl"
    texts = [re.sub(rb'"at":[\d.]+', b'"at":0', line[9:]) for line in journal.read_bytes().splitlines()]
    journal.write_bytes(_with_checksums(texts))
    (folder / "lock").write_text("process 1\n")


def _with_checksums(texts, ending=b"\n"):
    return b"".join(b"%08x %s%s" % (zlib.crc32(text), text, ending) for text in texts)


def _paint(project):
    labels = [labels.whole().tobytes() for labels in project.labels]
    return labels, project.classes, project.paint_state, project.models, project.current_model


def _check_classes(classes):
    """They can be told apart, painted, and written into a legend."""
    require(len({item.id for item in classes}) == len(classes), "two classes of one value", "classes")
    require(len({item.name for item in classes}) == len(classes), "two classes of one name", "classes")
    for item in classes:
        is_class = (
            type(item.id) is int and 0 <= item.id < 255 and isinstance(item.name, str) and item.name.isprintable()
        )
        is_class = is_class and isinstance(item.colour, str)
        require(is_class and re.fullmatch("#[0-9a-f]{6}", item.colour), f"the class {item!r:.200}", "classes")


def strokes():
    """One with each tool."""
    common = {"do": "paint", "image": 0, "class": 1}
    line = [[10.0, 10.0], [20.5, 30.125]]
    yield common | {"id": "s1", "tool": "brush", "radius": 3.0, "points": line}
    yield common | {"id": "s2", "tool": "line", "radius": 1.0, "points": line, "joins": "s1", "image": 1}
    yield common | {"id": "s3", "tool": "polygon", "radius": None, "points": [*line, [50.0, 0.0]], "class": 0}
    yield common | {"id": "s4", "tool": "fill", "radius": None, "points": [[100.0, 100.0]], "within": [0, 120, 0, 120]}
    yield common | {"id": "s5", "tool": "eraser", "radius": 5.0, "points": [[12.0, 12.0]], "class": None}


def _is_our_lock(file, content):
    """Whether a file is one that whoever opens a project writes into, even if the project is then refused."""
    return file.name == "lock" and (b"process" in content or not content.strip(b"\0\n"))


def _require_kept(content, folder):
    """Every line of a journal, or of a file of somebody else, is in some file still."""
    kept = b"".join(file.read_bytes() for file in special.plain_files(folder))
    lost = [line for line in re.split(rb"[\r\n]+", content) if line not in kept]
    require(not lost, f"{len(lost)} lines are gone, {lost[:1]!r:.100}", "lost lines")


def _change(folder, rng):
    kind = rng.random()
    if kind < 0.55:
        return _change_journal(folder / "journal.jsonl", rng)
    if kind < 0.8:
        return _change_project(folder / "project.json", rng)
    file = pick(rng, special.plain_files(folder))
    name = file.relative_to(folder)
    if kind < 0.9:
        return f"{name} is {special.exchange(file, rng)}"
    if kind < 0.95:
        file.write_bytes(pick(rng, FOREIGN))
        return f"{name} is a file of somebody else"
    content, done = damaged(file.read_bytes(), rng)
    file.write_bytes(content)
    return f"{name}: {done}"


def _change_journal(path, rng):
    """Entries changed, deleted, repeated or exchanged, with checksums that are right."""
    if not special.is_plain(path):
        return "nothing"
    lines = path.read_bytes().split(b"\n")[:-1]
    texts, done = [line[9:] for line in lines], []
    for _ in range(int(pick(rng, (1, 1, 2, 4)))):
        done.append(_change_entries(texts, rng))
    ending = pick(rng, SEPARATORS) if rng.random() < 0.05 else b"\n"
    content = _with_checksums(texts, ending)
    if rng.random() < 0.1:
        content, how = damaged(content, rng)
        done.append(how)
    path.write_bytes(content)
    return f"journal.jsonl: {', '.join(done)}"


def _change_entries(texts, rng):
    if not texts:
        return "nothing"
    at, kind = int(rng.integers(len(texts))), rng.integers(12)
    if kind == 0:
        del texts[at]
        return f"no entry {at}"
    if kind == 1:
        texts += [texts[at]] * int(pick(rng, (1, 50)))
        return f"entry {at} again"
    if kind == 2:
        texts.append(texts.pop(at))
        return f"entry {at} at the end"
    if kind == 3:
        texts[at] = pick(rng, TEXTUAL)
        return f"entry {at} is {texts[at]!r:.30}"
    try:
        tree = [json.loads(texts[at])]
    except (ValueError, RecursionError):  # it was changed before
        return "nothing"
    done = change(tree, rng, WORDS)
    texts[at : at + 1] = [json.dumps(one).encode() for one in tree]
    return f"{done} in entry {at}"


def _change_project(path, rng):
    if not special.is_plain(path):
        return "nothing"
    try:
        tree = json.loads(path.read_bytes())
    except (ValueError, RecursionError):  # it was changed before
        return "nothing"
    if rng.random() < 0.1:
        path.write_bytes(pick(rng, TEXTUAL))
        return "project.json: another text"
    done = [change(tree, rng, WORDS) for _ in range(int(rng.integers(1, 4)))]
    path.write_bytes(json.dumps(tree).encode())
    return f"project.json: {', '.join(done)}"


TEXTUAL = (
    *(b"", b"null", b"[]", b"{}", b"1", b'""', b'{"do": "undo"}', b'{"do": "redo"}', b'{"do": "other"}', b"9" * 5000),
    *(b"[" * 100_000, b'{"do":' * 900 + b"1" + b"}" * 900, b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b"{" * 9, b"nul"),
    *(b'{"do": "paint"}', b'{"do": "undo", "x": "' + b"x" * 10**6 + b'"}', b'{"do": ' + b"9" * 5000 + b"}", b"\xff"),
    *(b'\xef\xbb\xbf{"do": "undo"}', b'{"version": 2, "classes": []}', b'{"version": NaN, "classes": []}'),
)
