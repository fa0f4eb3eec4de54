"""What may lie where a file is expected: pipes, links to devices, folders, files without end; and copies of those.

Neither Git nor every disk can hold these, so a packed folder has a plain file in place of each: NAME.pipe, NAME.link
(with where it leads), NAME.folder (an empty one), NAME.sparse (with its size).
"""

import os
import shutil
import stat

from fuzz.values import pick

IS_POSSIBLE = hasattr(os, "mkfifo")  # not on Windows
SPARSE = 2**40  # bytes that a file seems to have, and the disk need not hold
LINKS = ("/dev/zero", "/dev/full", "itself", "..", "nowhere", "/proc/self/mem")


def exchange(path, rng):
    """Put something else where a plain file is; returns what, for people."""
    content = path.read_bytes()
    remove(path)
    everywhere = ("folder", "empty", "nothing")
    kind = pick(rng, (*everywhere, "pipe", "link", "link", "sparse") if IS_POSSIBLE else everywhere)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / path.name).write_bytes(content)
    elif kind == "link":
        target = pick(rng, LINKS)
        path.symlink_to(path.name if target == "itself" else target)
        kind = f"a link to {target}"
    elif kind == "sparse":
        _write_sparse(path, SPARSE)
    elif kind == "empty":
        path.write_bytes(b"")
    return kind


def plain_files(folder):
    """The files below a folder that were not exchanged."""
    return [path for path in sorted(folder.rglob("*")) if is_plain(path)]


def is_plain(path):
    """Whether a path is that of a file with all of its bytes."""
    return path.is_file() and not path.is_symlink() and not _is_sparse(path)


def remove(path):
    """Whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy(source, to):
    """A folder with whatever it holds."""
    to.mkdir()
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        path, new = source / entry.name, to / entry.name
        if entry.is_symlink():
            new.symlink_to(os.readlink(path))
        elif entry.is_dir():
            copy(path, new)
        elif stat.S_ISFIFO(path.stat().st_mode):
            os.mkfifo(new)
        elif _is_sparse(path):
            _write_sparse(new, path.stat().st_size)
        else:
            shutil.copyfile(path, new)


def pack(source, to):
    """A copy of a folder that Git can hold; what cases made beside their file is left out."""
    to.mkdir(parents=True)
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        path, new = source / entry.name, to / entry.name
        if entry.name.startswith("again"):
            continue
        if entry.is_symlink():
            new.with_name(f"{new.name}.link").write_text(os.readlink(path))
        elif entry.is_dir() and any(path.iterdir()):
            pack(path, new)
        elif entry.is_dir():
            new.with_name(f"{new.name}.folder").write_text("")
        elif stat.S_ISFIFO(path.stat().st_mode):
            new.with_name(f"{new.name}.pipe").write_text("")
        elif _is_sparse(path):
            new.with_name(f"{new.name}.sparse").write_text(str(path.stat().st_size))
        else:
            shutil.copyfile(path, new)


def can_unpack(source):
    """Whether this system can hold what was packed into a folder."""
    return IS_POSSIBLE or not any(path.suffix in (".pipe", ".link", ".sparse") for path in source.rglob("*"))


def unpack(source, to):
    """The folder that was packed."""
    to.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        new, plain = to / path.name, to / path.stem
        if path.is_dir():
            unpack(path, new)
        elif path.suffix == ".link":
            plain.symlink_to(path.read_text())
        elif path.suffix == ".folder":
            plain.mkdir()
        elif path.suffix == ".pipe":
            os.mkfifo(plain)
        elif path.suffix == ".sparse":
            _write_sparse(plain, int(path.read_text()))
        else:
            shutil.copyfile(path, new)


def _write_sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)


def _is_sparse(path):
    return path.stat().st_size > 2**24
