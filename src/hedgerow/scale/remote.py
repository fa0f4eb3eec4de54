"""Files on other machines, through fsspec, with patience for servers that answer errors now and then."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hedgerow import extras
from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import one_line

Found = TypeVar("Found")
ATTEMPTS = 6
FIRST_PAUSE = 0.2  # seconds; each further one is twice as long
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)  # asking again would not help
NO_KEYS = ("NoCredentialsError", "PartialCredentialsError")  # of botocore, which may not be installed
PROTOCOLS = {"s3": "s3fs", "http": "aiohttp", "https": "aiohttp"}


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address, such as s3://bucket/image.ome.zarr."""
    return "://" in os.fspath(path)


def absolute(path: str | os.PathLike[str]) -> str:
    """A path that means the same in another process; an address as it is."""
    text = os.fspath(path)
    return text if is_remote(text) else os.path.abspath(os.path.expanduser(text))


def check_address(path: str) -> None:
    """Refuse an address that this machine cannot read."""
    protocol = path.partition("://")[0].lower()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"cannot read {path}: addresses begin with {', '.join(f'{one}://' for one in PROTOCOLS)}"
            f" here, not {protocol}://; copy the file, or correct the address."
        )
    for package in ("fsspec", PROTOCOLS[protocol]):
        extras.require(package, f"{protocol}://")


def file_system(path: str) -> tuple[Any, str]:
    """fsspec's file system for an address, and the path on it. Keys and servers are those of the environment."""
    import fsspec

    check_address(path)
    found: tuple[Any, str] = fsspec.core.url_to_fs(path)
    return found


def identity_of_file(path: str) -> dict[str, Any]:
    """What changes with a file: its size, and when it was written or what its server says of it."""
    if not is_remote(path):
        found = os.stat(path)
        return {"size": found.st_size, "changed": found.st_mtime_ns}
    system, inside = file_system(path)
    told = patiently(lambda: system.info(inside), f"cannot read {path}")
    return {"size": told.get("size"), "changed": str(told.get("ETag", told.get("LastModified", "")))}


def is_there(path: str) -> bool:
    """Whether there is a file or a folder of this name, here or on another machine."""
    if not is_remote(path):
        return os.path.exists(path)
    system, inside = file_system(path)
    system.invalidate_cache()
    return bool(patiently(lambda: system.exists(inside), f"cannot read {path}"))


def store_of(path: str) -> Any:
    """What Zarr opens: a folder, or an address."""
    if not is_remote(path):
        return path
    from zarr.storage import FsspecStore

    check_address(path)
    return FsspecStore.from_url(path, read_only=False)


def patiently(work: Callable[[], Found], what: str, *, is_asked: bool = True) -> Found:
    """What `work` returns; on another machine, asked again a few times if it fails.

    what:     for the sentence, if it fails to the end
    is_asked: whether to ask again; a local disk that fails will fail again
    """
    pause = FIRST_PAUSE
    for attempt in range(ATTEMPTS if is_asked else 1):
        if attempt:
            time.sleep(pause)
            pause *= 2
        try:
            return work()
        except (HedgerowError, MemoryError, *NOT_THERE):
            raise
        except Exception as problem:
            last = problem
            if type(problem).__name__ in NO_KEYS:
                raise InputError(
                    f"{what}: {one_line(problem)}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in as your "
                    "provider says."
                ) from problem
    if not is_asked:
        raise last
    raise InputError(f"{what}: {one_line(last)}, {ATTEMPTS} times in a row; try again later.") from last
