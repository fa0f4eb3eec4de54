"""How much memory may be taken: what the machine, control groups and limits of the process leave."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import extras, memory
from hedgerow.errors import HedgerowError, ModelError
from helpers.refusals import assert_one_sentence, assert_refused

V1, V2 = "4:memory,cpu:/job/step\n1:cpuset:/other\n", "0::/job/step\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8 MB available and no limits; returns the folder that stands for all that Linux says."""
    (tmp_path / "meminfo").write_text("MemTotal:  16000 kB\nMemFree:   1 kB\nMemAvailable:   8000 kB\n")
    files = {"MEMINFO": "meminfo", "ADDRESS_SPACE": "statm", "CONTROL_GROUPS": "cgroup", "GROUP_FOLDER": "fs"}
    for name, file in files.items():
        monkeypatch.setattr(memory, name, tmp_path / file)
    monkeypatch.setattr(memory, "resource", None)
    return tmp_path


def group(folder, limit, used, **stats):
    """Files of a control group; `limit` and `used` are (name, content)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (limit, used):
        (folder / name).write_text(f"{content}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {n}\n" for name, n in stats.items()))


def test_the_machine_without_limits(system):
    assert memory.available() == 8000 * 1024


@pytest.mark.parametrize("depth", ["job/step", "job", ""])
def test_a_group_or_one_around_it_leaves_less(system, depth):
    (system / "cgroup").write_text(V2)
    for inner in ("job/step", "job"):
        group(system / "fs" / inner, ("memory.max", "max"), ("memory.current", 7), active_file=1)
    kept = {"active_file": 300, "inactive_file": 200, "anon": 9}
    group(system / "fs" / depth, ("memory.max", 5000), ("memory.current", 4000), **kept)
    assert memory.available() == 5000 - (4000 - 500)


def test_groups_of_the_first_version(system):
    (system / "cgroup").write_text(V1)
    limit, used = ("memory.limit_in_bytes", 5000), ("memory.usage_in_bytes", 4000)
    stats = {"active_file": 1, "inactive_file": 1, "total_active_file": 300, "total_inactive_file": 200}
    group(system / "fs" / "memory" / "job" / "step", limit, used, **stats)
    assert memory.available() == 1500
    # In a container, the folder is not that of the group's full name.
    (system / "cgroup").write_text("4:memory:/outside/of/the/container\n")
    assert memory.available() == 8000 * 1024
    group(system / "fs" / "memory", limit, used, **stats)
    assert memory.available() == 1500


def test_a_group_that_has_used_all_leaves_nothing(system):
    (system / "cgroup").write_text("0::/\n")
    group(system / "fs", ("memory.max", 1000), ("memory.current", 4000))
    assert memory.available() == 0


@pytest.mark.parametrize("limit", [20 * 4096, -1])
def test_the_address_space(system, monkeypatch, limit):
    (system / "statm").write_text("15 3 2 1 0 4 0\n")
    limits = SimpleNamespace(
        RLIMIT_AS=9, RLIM_INFINITY=-1, getrlimit=lambda which: (limit, limit), getpagesize=lambda: 4096
    )
    monkeypatch.setattr(memory, "resource", limits)
    assert memory.available() == (5 * 4096 if limit > 0 else 8000 * 1024)


def test_where_linux_says_nothing(system, monkeypatch):
    (system / "meminfo").unlink()
    pages = {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    assert memory.available() == 409600
    monkeypatch.delattr(os, "sysconf")
    assert memory.available() is None


def test_this_machine():
    found = memory.available()
    assert found is None or found > 10**6


def test_gigabytes():
    assert memory.gigabytes(12_345_600_000) == "12.35 GB"


def test_want_of_memory_is_known_by_whoever_says_it():
    torch = pytest.importorskip("torch")
    for ask in (lambda: np.empty(2**60, np.uint8), lambda: torch.empty(2**60, dtype=torch.uint8)):
        with pytest.raises((MemoryError, RuntimeError)) as problem:
            ask()
        assert memory.ran_out(problem.value)
    assert memory.ran_out(torch.OutOfMemoryError("CUDA out of memory"))
    assert memory.ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not memory.ran_out(RuntimeError("shapes do not fit"))


NO_ROOM = ImportError("libtorch.so: failed to map segment from shared object")


def test_libraries_for_which_there_is_no_room_are_not_missing(monkeypatch):
    assert memory.ran_out(NO_ROOM)
    assert memory.ran_out(ImportError("cannot create shared object descriptor: Cannot allocate memory"))
    assert memory.ran_out(OSError(errno.ENOMEM, "Cannot allocate memory"))
    wrapped = OSError("Could not find/load shared object file 'libllvmlite.so'")
    assert not memory.ran_out(wrapped)
    wrapped.__context__ = OSError("libllvmlite.so: failed to map segment from shared object")
    assert memory.ran_out(wrapped)
    assert memory.ran_out(RuntimeError("could not create a primitive"))
    assert not memory.ran_out(ImportError("failed to map segment from shared object: Operation not permitted"))
    assert not memory.ran_out(ImportError("cannot allocate memory in static TLS block"))
    assert not memory.ran_out(OSError(errno.ENOSPC, "No space left on device"))
    for error, words in (
        (NO_ROOM, "not enough memory to load it"),
        (MemoryError(), "not enough memory to load it"),
        (ImportError("undefined symbol: nothing"), "cannot be loaded (undefined symbol: nothing)"),
        (ModuleNotFoundError("No module named 'torch'"), "not installed"),
    ):

        def refuse(name, error=error):
            raise error

        monkeypatch.setattr(extras.importlib, "import_module", refuse)
        with pytest.raises(HedgerowError) as problem:
            extras.require("torch", "a network")
        assert_one_sentence(problem, "a network needs torch", words)


@pytest.mark.parametrize("error", [MemoryError(), NO_ROOM, RuntimeError("could not create a primitive")])
def test_a_model_for_which_there_is_no_room_is_not_damaged(model_file, monkeypatch, error):
    def refuse(*arguments):
        raise error

    monkeypatch.setattr("hedgerow.io.model_file._rebuild", refuse)
    with pytest.raises(ModelError, match="not enough memory"):
        hr.load(model_file)


def test_a_process_with_little_address_space_says_so(stack, tmp_path):
    """As `ulimit -v` sets it: less than PyTorch needs, and more than Hedgerow without it."""
    pytest.importorskip("resource")
    pytest.importorskip("torch")
    if not memory.ADDRESS_SPACE.exists():
        pytest.skip("this system does not say how much address space is taken")
    hr.save(hr.to_convnet(stack), tmp_path / "net.hedge")
    code = (
        "import hedgerow as hr, hedgerow.io.model_file, resource, sys\n"
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26,) * 2)\n"
        "try: hr.load('net.hedge')\n"
        "except hr.errors.HedgerowError as error: print(error)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "not enough memory" in finished.stdout, finished
    assert "not installed" not in finished.stdout


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_command_without_memory_says_so_and_leaves_with_2(hedgerow, model_file, place, monkeypatch, by_torch):
    def refuse(*arguments, **options):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate") if by_torch else MemoryError

    monkeypatch.setattr("hedgerow.predict.file_outputs.predict_tiles", refuse)
    ended = hedgerow("predict", model_file, place / "images", "-o", place / "out")
    assert ended.code == 2
    assert "a0.png: it does not fit in memory" in ended.err
    assert "a1.png" in ended.err, "the other images go on"
    monkeypatch.setattr("hedgerow.jobs.evaluating.score_each", refuse)
    assert_refused(hedgerow("evaluate", model_file, place / "images", place / "labels"), "not enough memory")
