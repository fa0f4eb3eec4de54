"""All that writes or deletes goes through the guard of files: no module does it by itself."""

from pathlib import Path

import pytest

import hedgerow
from helpers.raw_writes import Module, raw_writes, takers

SOURCE = Path(hedgerow.__file__).parent
PLUGINS = SOURCE.parents[1] / "plugins"
GUARD = ("files.py", "temporary.py", "overwrite_guard.py")
# Where a file is written to otherwise, by what, and why that is safe.
EXCEPTIONS = {
    ("cli/common.py", "open"): "the device that swallows everything",
    ("encoders/download.py", "open"): "an address that is read, and a member of an archive in memory",
    ("encoders/download.py", "run"): "pip, which prints its settings",
    ("paint/guarding.py", "open"): "a temporary file that only its user can read",
    ("paint/journal.py", "open"): "a journal grows line by line",
    ("paint/journal.py", "truncate"): "a line that could not be written as a whole is taken back",
    ("locking.py", "open"): "a lock must be a file that stays",
    ("locking.py", "truncate"): "who holds the lock",
    ("locking.py", "remove"): "a lock that this process holds, and whose content was checked before",
    ("report/figures.py", "save"): "a method of ours, which is guarded",
    ("scale/markers.py", "pipe_file"): "marks on another machine, in the folder for them",
    ("scale/markers.py", "rm"): "marks on another machine, in the folder for them",
    ("scale/ome_zarr_out.py", "zarr.open_array"): "a large result, in a folder that was claimed by a mark",
    ("scale/ome_zarr_out.py", "zarr.open_group"): "a large result, in a folder that was claimed by a mark",
    ("scale/ome_zarr_out.py", "rm"): "on another machine, after the same check as here",
}


def sources():
    """Name -> text of every module but for the guard; of plugins, too."""
    found = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    found |= {path.relative_to(PLUGINS).as_posix(): path for path in PLUGINS.glob("*/src/**/*.py")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items() if name not in GUARD}


def test_nothing_writes_or_deletes_past_the_guard():
    texts, known = sources(), {}
    assert len(texts) > 200
    for text in texts.values():
        known |= takers(Module.of(text))
    writes = {name: raw_writes(text, known) for name, text in texts.items()}
    wrong = [f"{name}, {one}" for name, ones in writes.items() for one in ones if (name, one.name) not in EXCEPTIONS]
    assert not wrong, wrong
    used = {(name, one.name) for name, ones in writes.items() for one in ones}
    assert used == set(EXCEPTIONS), "an exception that is not needed is removed from the list"


HEAD = """
import gzip, io, os, pickle, shutil, sqlite3, subprocess, tarfile, tempfile, zipfile
import imageio, imageio.v3 as iio, numpy as np, onnx, tifffile, torch, zarr
import pathlib as pl
import os as system
from os import replace as put
from pathlib import Path
from shutil import rmtree
import hedgerow.temporary
from hedgerow import temporary as own
from hedgerow.files import atomic_path
from hedgerow.temporary import remove, temporary_file, temporary_folder
"""


def names_in(body):
    text = HEAD + "def work(path, other, image, mode):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    return [one.name for one in raw_writes(text)]


@pytest.mark.parametrize(
    "line",
    [
        "path.unlink()",
        "path.unlink(missing_ok=True)",
        "list(map(Path.unlink, [path]))",
        "getattr(path, 'unlink')()",
        "os.remove(path)",
        "system.remove(path)",
        "os.rename(path, other)",
        "path.rename(other)",
        "path.replace(other)",
        "path.replace(target=other)",
        "pl.Path.replace(path, other)",
        "getattr(os, 'remove')(path)",
        "getattr(shutil, 'move')(path, other)",
        "from os import *",
        "os.system('rm a')",
        "subprocess.run(['rm', path])",
        "Path.replace(path, other)",
        "os.replace(path, other)",
        "put(path, other)",
        "path.rmdir()",
        "os.rmdir(path)",
        "shutil.rmtree(path)",
        "rmtree(path, ignore_errors=True)",
        "clean = rmtree",
        "os.truncate(path, 0)",
        "open(path, 'w')",
        "open(path, 'ab')",
        "open(path, mode='x')",
        "open(path, 'rb+')",
        "open(path, mode)",
        "open(*[path, 'w'])",
        "open(path, **{'mode': 'w'})",
        "io.open(path, 'w')",
        "path.open('w')",
        "path.open(mode='w')",
        "path.open(mode)",
        "open(file=path, mode='w')",
        "open(path, 'w' if mode else 'r')",
        "os.fdopen(path, 'w')",
        "gzip.GzipFile(path, 'wb')",
        "gzip.open(path, 'wb')",
        "tarfile.open(path, 'w:gz')",
        "Path(path).open(mode=mode)",
        "os.open(path, os.O_WRONLY)",
        "path.write_text('')",
        "path.write_bytes(b'')",
        "(path / 'part').write_bytes(b'')",
        "write = path.write_text",
        "path.touch()",
        "path.symlink_to(other)",
        "os.link(path, other)",
        "shutil.move(path, other)",
        "shutil.copy(path, other)",
        "shutil.copyfile(path, other)",
        "shutil.copytree(path, other)",
        "np.save(path, image)",
        "np.savez(file=path)",
        "np.save(file=path, arr=image)",
        "tifffile.imwrite(file=path, data=image)",
        "image.save(fp=path)",
        "iio.imwrite(path, image)",
        "imageio.get_writer(path)",
        "iio.imopen(path, 'w')",
        "torch.save(image, path)",
        "torch.onnx.export(image, path)",
        "onnx.save_model(image, path)",
        "pickle.dump(image, path)",
        "sqlite3.connect(path)",
        "np.memmap(path, mode='w+')",
        "np.memmap(path)",
        "image.tofile(path)",
        "image.save(path)",
        "image.savefig(path)",
        "tifffile.imwrite(path, image)",
        "tifffile.TiffWriter(path)",
        "zipfile.ZipFile(path, 'w')",
        "zarr.create_group(path)",
        "zarr.create(store=path)",
        "zarr.save_array(path, image)",
        "zarr.zeros((1,), store=path)",
        "zarr.from_array(path, data=image)",
        "zarr.open_array(path, mode='a')",
        "zarr.copy_store(path, other)",
        "zarr.open(path)",
        "zipfile.ZipFile(path).extractall(other)",
        "urllib.request.urlretrieve(path, other)",
        "logging.FileHandler(path)",
        "image.to_zarr(path)",
        "remove(path)",
        "own.remove(path)",
        "hedgerow.temporary.remove(path)",
        "with open(path, 'wb') as file:\n    np.save(file, image)",
    ],
)
def test_a_raw_write_or_delete_is_found(line):
    assert names_in(line), line


@pytest.mark.parametrize(
    "body",
    [
        "with atomic_path(path) as temporary:\n    temporary = path\n    temporary.write_text('')",
        "with atomic_path(path) as temporary:\n    path.write_text('')",
        "with atomic_path(path) as temporary:\n    shutil.copyfile(temporary, path)",
        "with atomic_path(path) as temporary:\n    os.replace(temporary, path)",
        "with atomic_path(path) as temporary:\n    pass\nfor temporary in [path]:\n    temporary.write_text('')",
        "with path.atomic_path() as temporary:\n    temporary.write_text('')",
        "with atomic_path(path) as temporary:\n    def inner(temporary_):\n        temporary_.touch()",
        "with atomic_path(path) as found:\n    lambda found: found.touch()",
        "with atomic_path(path) as found:\n    def inner(found):\n        found.touch()",
        "file = io.BytesIO()\nfile = path\nimage.save(file)",
        "def write(temporary): temporary.write_text('')\nwrite(path)",
        "def write(temporary): temporary.write_text('')\nwrite(temporary=path)",
        "def write(temporary): temporary.write_text('')\nlist(map(write, [path]))",
        "class Writer:\n    def put_down(self, what, temporary): temporary.touch()\nWriter().put_down(image, path)",
    ],
)
def test_a_temporary_name_is_not_taken_for_granted(body):
    assert names_in(body), body


@pytest.mark.parametrize(
    "body",
    [
        "with atomic_path(path) as temporary:\n    temporary.write_text('')",
        "with atomic_path(path) as one, atomic_path(other) as two:\n    one.write_text('')\n    two.write_text('')",
        "with atomic_path(path) as temporary, open(temporary, 'wb') as file:\n    np.savez(file, image)",
        "with atomic_path(path) as temporary, zipfile.ZipFile(temporary, 'w') as archive:\n    archive.write(other)",
        "with atomic_path(path) as temporary:\n    shutil.copyfile(path, temporary)",
        "with atomic_path(path) as temporary:\n    zarr.create_group(temporary)",
        "with temporary_folder(path) as inside:\n    (inside / 'part').write_bytes(b'')",
        "with temporary_file(path, 10) as room:\n    np.memmap(room, image, 'r+')",
        "with tempfile.TemporaryDirectory() as folder:\n    (Path(folder) / 'part').write_bytes(b'')",
        "file = io.BytesIO()\nimage.save(file, format='PNG')",
        "def write(image, temporary): image.save(temporary)\nwith atomic_path(path) as one:\n    write(image, one)",
        "open(path)",
        "open(path, 'rb')",
        "path.open()",
        "path.open('rb')",
        "image.open(path, 'rb')",
        "np.memmap(path, mode='r')",
        "zarr.open(path, mode='r')",
        "zipfile.ZipFile(path)",
        "'a'.replace('a', 'b')",
        "[path].remove(path)",
        "image.rename(path, 'name')",
        "shutil.which('git')",
        "os.stat(path)",
    ],
)
def test_what_is_guarded_or_only_reads_passes(body):
    assert not names_in(body), body
