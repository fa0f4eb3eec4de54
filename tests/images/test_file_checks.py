"""Paths that are no image files: pipes, sockets, devices, links in a circle, names that no system takes."""

import os
import socket
import sys

import numpy as np
import pytest
import zarr

from hedgerow.errors import InputError
from hedgerow.images.label_files import read_labels
from hedgerow.images.pairing import find_files, pair_files, stem_of
from hedgerow.images.reading import ENDINGS, read_image, what_was_read
from helpers.files import random_array, read_channels, touch, write
from helpers.refusals import assert_one_sentence

IMAGE = random_array((5, 7), "u1")
READS = (read_image, read_channels, read_labels, what_was_read)
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
needs_bytes = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="all names are UTF-8")


@pytest.fixture
def link(tmp_path):
    """Makes symbolic links, where the system has them."""

    def make(name, target):
        try:
            os.symlink(target, tmp_path / name)
        except (OSError, NotImplementedError):
            pytest.skip("there are no symbolic links")
        return tmp_path / name

    return make


def refused(path, *words, reads=READS):
    for read in reads:
        if read is read_labels and str(path).lower().endswith((".jpg", ".jpeg")):
            continue
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, "cannot read ", *words)


@needs_pipes
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_pipe_is_refused_and_never_waited_for(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    os.mkfifo(path)
    assert find_files(path) == find_files(tmp_path) == find_files(str(tmp_path / "*")) == [path]
    refused(path, path, "pipe (FIFO)", "leave it out")


@needs_pipes
def test_a_link_to_a_pipe(tmp_path, link):
    os.mkfifo(tmp_path / "pipe")
    refused(link("a.png", "pipe"), "a.png", "pipe (FIFO)")


def test_sockets_and_devices(tmp_path, monkeypatch, link):
    if os.path.exists("/dev/zero"):
        refused(link("a.png", "/dev/zero"), "a.png", "a device")
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("there are no sockets with names")
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("b.tif")
        refused(tmp_path / "b.tif", "b.tif", "a socket")


@needs_pipes
@pytest.mark.parametrize("version", [2, 3])
def test_pipes_inside_a_zarr(tmp_path, version):
    def fresh():
        name = f"{len(list(tmp_path.iterdir()))}.zarr"
        zarr.create_array(tmp_path / name, data=np.ones((4, 6), np.uint8), chunks=(2, 3), zarr_format=version)
        return tmp_path / name

    metadata = {2: ".zarray", 3: "zarr.json"}[version]
    chunk = {2: "0.0", 3: "c/0/0"}[version]
    for name, reads in ((metadata, READS), (chunk, (read_image, read_labels))):
        path = fresh()
        assert read_image(path).shape == (4, 6)
        (path / name).unlink()
        os.mkfifo(path / name)
        refused(path, path / name, "pipe (FIFO)", reads=reads)
    for attributes in ({}, {"multiscales": [{"datasets": [{"path": "0"}]}]}):
        path = tmp_path / f"group{len(attributes)}.zarr"
        zarr.create_group(path, zarr_format=version, attributes=attributes)
        (path / "0").mkdir()
        os.mkfifo(path / "0" / metadata)
        refused(path, path / "0" / metadata, "pipe (FIFO)")


def test_links_in_a_circle_or_to_nowhere(tmp_path, link):
    loop, first, second = link("loop.png", "loop.png"), link("one.tif", "two.tif"), link("two.tif", "one.tif")
    dangling, folder = link("gone.png", "nowhere.png"), link("folder.zarr", "folder.zarr")
    good = write(tmp_path / "good.png", IMAGE)
    assert find_files(tmp_path) == [folder, dangling, good, loop, first, second]
    for path in (loop, first, second, folder):
        refused(path, path, "leads back to itself")
        with pytest.raises(InputError) as problem:
            find_files(path)
        assert_one_sentence(problem, path, "leads back to itself")
    refused(dangling, dangling, "not there")
    with pytest.raises(InputError) as problem:
        find_files([good, dangling])
    assert_one_sentence(problem, dangling, "not there")
    refused(loop / "a.png", "loop.png")
    assert find_files(str(tmp_path / "*.tif")) == [first, second]
    touch(*(tmp_path / "labels" / f"{path.stem}.png" for path in find_files(tmp_path)))
    assert [pair.image for pair in pair_files(tmp_path, tmp_path / "labels")] == find_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 300 + ".png", "longer than the system allows"),
        ("x" * 5000, "longer than the system allows"),
        ("a\0b.png", "file names cannot have"),
        ("~a\0b/c.png", ""),
        ("*\0.png", ""),
        ("a\0*/*.png", ""),
        ("good.png/a.png", "a file and not a folder"),
        ("a\nb.png", "no such file"),
    ],
    ids=["300", "5000", "nul", "user", "glob", "globs", "inside", "line"],
)
def test_names_that_no_file_can_have(tmp_path, name, words, monkeypatch):
    write(tmp_path / "good.png", IMAGE)
    monkeypatch.chdir(tmp_path)
    for spec in (name, str(tmp_path / name)):
        with pytest.raises(InputError) as problem:
            find_files(spec)
        assert_one_sentence(problem, words)
        assert len(str(problem.value)) < 500
    refused(tmp_path / name)


@needs_bytes
def test_names_that_are_not_utf8(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    for folder in (images, labels):
        folder.mkdir()
        for name in (b"caf\xe9 2.png", b"caf\xe9 10.png"):
            with open(os.path.join(os.fsencode(folder), name), "wb") as file:
                file.write(write(tmp_path / "a.png", IMAGE).read_bytes())
    stems = [os.fsdecode(b"caf\xe9 2"), os.fsdecode(b"caf\xe9 10")]
    assert [stem_of(path) for path in find_files(images)] == stems
    pairs = pair_files(images, labels)
    assert [pair.stem for pair in pairs] == stems
    np.testing.assert_array_equal(read_image(pairs[0].image), IMAGE)
    (labels / pairs[0].label.name).unlink()
    notes = []
    assert [pair.stem for pair in pair_files(images, labels, notes.append)] == stems[1:]
    notes[0].encode()
    with pytest.raises(InputError) as problem:
        pair_files(images / pairs[0].image.name, labels)
    str(problem.value).encode()


def test_folders_and_files_that_may_not_be_read(tmp_path, monkeypatch):
    path = write(tmp_path / "a.png", IMAGE)
    (tmp_path / "b.png").mkdir()
    refused(tmp_path / "b.png", "it is a folder")
    state = {"stat": False}
    stat = os.stat

    def deny(name, *arguments, **options):
        if state["stat"] and os.fspath(name) == str(path):
            raise PermissionError(13, "Permission denied", name)
        return stat(name, *arguments, **options)

    def deny_opening(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", deny_opening)
        refused(path, path, "permission denied", "change the permissions")
    with monkeypatch.context() as patched:
        state["stat"] = True
        patched.setattr(os, "stat", deny)
        refused(path, path, "permission denied")
        with pytest.raises(InputError) as problem:
            find_files(path)
        assert_one_sentence(problem, path, "permission denied")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions bind others, not this user")
def test_permissions(tmp_path):
    path = write(tmp_path / "inside" / "a.png", IMAGE)
    path.chmod(0)
    refused(path, "permission denied")
    path.parent.chmod(0o400)  # its names can be listed, and nothing else
    try:
        assert find_files(path.parent) == [path]
        refused(path, "permission denied")
    finally:
        path.parent.chmod(0o700)
