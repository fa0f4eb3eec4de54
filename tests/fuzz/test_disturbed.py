"""Commands that are killed, run out of disk, or may not read or write: nothing is lost, nothing is half-written."""

import contextlib
import os
import subprocess

import numpy as np
import pytest

pytest.importorskip("fcntl", reason="needs the processes of Unix")

from fuzz.disturbed import IS_POSSIBLE, NAMES, Disturbed, check_refusal
from fuzz.privileges import can_be_humble
from helpers.files import listing

# The other commands in `make test-all`.
SOME = [name if name == "train" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
pytestmark = pytest.mark.skipif(not IS_POSSIBLE, reason="this system cannot fork")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    found = Disturbed(tmp_path_factory.mktemp("disturbed"))
    yield found
    found.stop()


def moments(scene, n, rng):
    """n steps, from the first to the last, and n times."""
    steps = np.unique(np.linspace(0, scene.steps - 1, n).astype(int))
    return [{"step": int(step)} for step in steps] + [{"after": float(rng.random() * scene.seconds)} for _ in range(n)]


@pytest.mark.parametrize("name", SOME)
def test_a_killed_command_leaves_the_old_or_the_new_and_the_next_run_finishes(disturbed, name):
    rng = np.random.default_rng(0)
    for number, moment in enumerate(moments(disturbed.scene(name), 2, rng)[:3]):
        disturbed.kill(name, number % 2, fresh=number == 1, **moment)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_command_killed_at_any_step(disturbed, name):
    rng = np.random.default_rng(1)
    for number, moment in enumerate(moments(disturbed.scene(name), disturbed.scene(name).steps, rng)):
        disturbed.kill(name, number % 2, fresh=number % 5 == 4, **moment)


def test_a_refinement_killed_again_and_again_ends_with_the_same_bits(disturbed):
    if "refine" not in NAMES:
        pytest.skip("PyTorch is not installed")
    scene = disturbed.scene("refine")
    scene.clear()
    n_killed, code = 0, None
    while code != 0:
        # Some steps further each time: a checkpoint is a step or two of the files.
        code = scene.run(0, step=12).code
        n_killed += code != 0
        assert n_killed < 50
    assert n_killed > 1
    assert scene.left().outputs == scene.wholes[0]
    assert not scene.left().temporary


@pytest.mark.parametrize("name", SOME)
def test_a_full_disk_costs_nothing_that_was_there(disturbed, name):
    ended = set()
    for number, largest in enumerate((0, 300, 10**6)):
        full = contextlib.nullcontext({"largest": largest})
        ended.add(disturbed.fill(name, number % 2, full, fresh=number == 1).what)
    assert {"old kept", "finished"} <= ended


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of its own, of so many bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=0", "none", folder]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems can be mounted only by an administrator")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def filled(folder, free):
    """Nearly all of the space of a disk is taken; some bytes are left."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(filler, max(filler.stat().st_size - free, 0))
    try:
        yield {}
    finally:
        filler.unlink()


@pytest.mark.slow
def test_a_disk_that_is_really_full_costs_nothing_either(tmp_path):
    with small_disk(tmp_path / "disk", 2**23) as disk:
        disturbed = Disturbed(disk / "work", home=tmp_path / "home")
        try:
            for name in ("train", "predict tif", "predict zarr"):
                for number, free in enumerate((0, 12_288)):
                    disturbed.fill(name, number % 2, filled(disk, free), fresh=number == 1)
        finally:
            disturbed.stop()


# Permissions


@contextlib.contextmanager
def mode(path, value):
    """A file or folder with other permissions."""
    before = path.stat().st_mode
    path.chmod(value)
    try:
        yield
    finally:
        path.chmod(before)


@pytest.fixture
def humble(disturbed):
    """Runs the command of a scene without an administrator's rights: humble("train", 0) -> Ended."""
    if not can_be_humble():
        pytest.skip("permissions do not apply to an administrator here")

    def run(name, version):
        return disturbed.scene(name).run(version, humble=True)

    return run


FORBIDDEN = {
    "folder of the output": ("train", ".", 0o555),
    "folder of the maps": ("predict png", "maps", 0o555),
    "folder of the Zarr maps": ("predict zarr", "maps", 0o555),
    "model": ("predict png", "model0.hedge", 0o000),
    "settings": ("train", "settings.toml", 0o000),
    "image to train on": ("train", "images/a1.png", 0o000),
    "folder of images": ("predict png", "images", 0o000),
    "folder of labels": ("train", "labels", 0o000),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_may_not_be_read_or_written_is_said_in_one_sentence(disturbed, humble, what):
    name, path, value = FORBIDDEN[what]
    scene = disturbed.scene(name)
    assert scene.run(1).code == 0
    before = listing(scene.folder)
    with mode(scene.folder / path, value):
        ended = humble(name, 0)
    assert ended.code == 2, ended
    check_refusal(ended)
    assert len(ended.err.splitlines()) == 1, ended.err
    assert listing(scene.folder) == before


def test_an_image_that_may_not_be_read_does_not_stop_the_others(disturbed, humble):
    scene = disturbed.scene("predict png")
    assert scene.run(1).code == 0
    with mode(scene.folder / "images" / "a1.png", 0o000):
        ended = humble("predict png", 0)
    assert ended.code == 2, ended
    check_refusal(ended)
    assert "a1.png" in ended.err
    left = scene.left().outputs
    assert left["maps/a1.png"] == scene.wholes[1]["maps/a1.png"]
    assert all(left[name] == scene.wholes[0][name] for name in left if name != "maps/a1.png")


def test_inputs_need_not_be_writable(disturbed, humble):
    scene = disturbed.scene("train")
    with mode(scene.folder / "images", 0o555), mode(scene.folder / "labels" / "a0.png", 0o444):
        assert humble("train", 1).code == 0
    assert scene.left().outputs == scene.wholes[1]
