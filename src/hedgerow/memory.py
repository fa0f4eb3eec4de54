"""How much memory this process may still allocate; amounts of memory and file sizes for display."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Files of Linux.
MEMINFO = Path("/proc/meminfo")
ADDRESS_SPACE = Path("/proc/self/statm")
CONTROL_GROUPS = Path("/proc/self/cgroup")
GROUP_FOLDER = Path("/sys/fs/cgroup")

# Parts of the messages of PyTorch and of library loaders when memory runs out.
PYTORCH_MESSAGES = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED", "could not create a primitive")
LOADER_MESSAGES = ("failed to map segment", "Cannot allocate memory")


def available() -> int | None:
    """Bytes that can still be allocated: the memory of the machine, or what limits leave to this process if that is
    less; None if the system does not say."""
    bounds = [bound for bound in (_of_machine(), _of_group(), _of_address_space()) if bound is not None]
    return max(min(bounds), 0) if bounds else None


def ran_out(error: BaseException) -> bool:
    """Whether an exception means that memory ran out. PyTorch has a type for this only on a GPU, and not in all
    libraries that it calls there; otherwise only the text shows it."""
    text = str(error)
    if isinstance(error, ImportError | OSError):
        text = f"{text} {error.__context__}"  # where llvmlite gives the reason why a library cannot be loaded
        is_loader = any(words in text for words in LOADER_MESSAGES) and "not permitted" not in text
        return is_loader or getattr(error, "errno", None) == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or any(words in text for words in PYTORCH_MESSAGES))
    )


def megabytes(n_bytes: int) -> str:
    """A file size for display: "1.47 MB", or "12.3 kB" for a small file."""
    return f"{n_bytes / 1e6:.2f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def gigabytes(n_bytes: int) -> str:
    """An amount of memory for display: "1,234.50 GB"."""
    return f"{n_bytes / 1e9:,.2f} GB"


def _of_machine() -> int | None:
    """The memory that Linux can give without swapping; on other systems all memory, since each reports free memory
    in its own way."""
    for line in _text(MEMINFO).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            with suppress(ValueError, IndexError):
                return int(value.split()[0]) * 1024
    with suppress(AttributeError, ValueError, OSError):  # no such call, no such name, no answer
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """The memory that the control groups of this process leave, by which containers and batch systems limit memory."""
    left = []
    for folder, limit_name, used_name, prefix in _groups():
        with suppress(ValueError):  # no such file, or "max": no limit here
            limit, used = (int(_text(folder / name)) for name in (limit_name, used_name))
            amounts = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines())
            # Cached files count as used, but are dropped when memory is needed.
            cached = sum(int(amounts.get(prefix + kind, 0)) for kind in ("active_file", "inactive_file"))
            left.append(limit - max(used - cached, 0))
    return min(left, default=None)


def _groups() -> Iterator[tuple[Path, str, str, str]]:
    """The folders of the control group of this process and of those that contain it, in version 2 or 1; the names of
    the files with its limit and its use; and the prefix of the names of sums that include inner groups."""
    for line in _text(CONTROL_GROUPS).splitlines():
        _, controllers, inside = line.split(":", 2)
        root = GROUP_FOLDER if not controllers else GROUP_FOLDER / "memory"
        names = ("memory.max", "memory.current", "")
        if "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        elif controllers:
            continue
        innermost = root / inside.strip("/")
        for folder in (innermost, *innermost.parents):
            if folder.is_relative_to(root):
                yield folder, *names


def _of_address_space() -> int | None:
    """The memory that `ulimit -v` leaves."""
    if resource is None:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    taken = _text(ADDRESS_SPACE).split()
    return limit - (int(taken[0]) * resource.getpagesize() if taken else 0)


def _text(path: Path) -> str:
    """The content of a file; empty if it is missing or cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
