"""Reads files on other machines through fsspec. Requests that fail are repeated; silent servers time out."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hedgerow import extras
from hedgerow.errors import HedgerowError, InputError, masked, one_line
from hedgerow.images.file_checks import METADATA_BYTES, number_from_environment

log = logging.getLogger("hedgerow")

Result = TypeVar("Result")
ATTEMPTS = 6
ATTEMPTS_IN_SILENCE = 3
TIMEOUT_VARIABLE = "HEDGEROW_TIMEOUT"
DEFAULT_TIMEOUT = 20.0  # seconds without an answer, or without the next part of one
FIRST_PAUSE = 0.2  # seconds; each later pause is twice as long
# Repeating the request would not help.
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
NO_KEYS = ("NoCredentialsError", "PartialCredentialsError")  # of botocore, which may not be installed
REDIRECTS = {  # errors of aiohttp, which may not be installed
    "TooManyRedirects": "again and again",
    "InvalidUrlRedirectClientError": "to something that is no address",
}
REFUSED = range(400, 500)  # statuses of web servers that will not change
PASSED = (408, 429)  # exceptions, which may change
PROTOCOLS = {"s3": "s3fs", "http": "aiohttp", "https": "aiohttp"}


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address, such as s3://bucket/image.ome.zarr."""
    return "://" in os.fspath(path)


def absolute(path: str | os.PathLike[str]) -> str:
    """An absolute path, valid in other processes; an address as it is."""
    text = os.fspath(path)
    return text if is_remote(text) else os.path.abspath(os.path.expanduser(text))


def check_address(path: str) -> None:
    """Refuse an address that this machine cannot read."""
    protocol = path.partition("://")[0].lower()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"cannot read {path}: addresses must begin with {', '.join(f'{one}://' for one in PROTOCOLS)},"
            f" not {protocol}://; copy the file, or correct the address."
        )
    if protocol == "s3" and "@" in path.partition("://")[2].partition("/")[0]:
        raise InputError(
            f"cannot read {path}: its address contains keys, which would be stored and shown; instead set"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in as your provider describes."
        )
    for package in ("fsspec", PROTOCOLS[protocol]):
        extras.require(package, f"{protocol}://")


def file_system(path: str, **options: Any) -> tuple[Any, str]:
    """fsspec's file system for an address, and the path in it. Keys and servers come from the environment.

    The user and password in a web address are sent to its server and removed from the path.
    """
    import fsspec

    check_address(path)
    protocol = path.partition("://")[0].lower()
    seconds = number_from_environment(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT, "60 for a minute")
    if protocol == "s3":
        once = {"total_max_attempts": 1}  # `with_retries` repeats requests
        options["config_kwargs"] = {"connect_timeout": seconds, "read_timeout": seconds, "retries": once}
    else:
        from hedgerow.images.web import connection_to, session

        path, options["client_kwargs"] = connection_to(path, seconds)
        options["get_client"] = session
    system, inside = fsspec.core.url_to_fs(path, **options)
    if protocol == "s3":
        system.retries = 1
    return system, inside


def identity_of_file(path: str) -> dict[str, Any]:
    """Values that change with a file: its size, and when it was written or a tag that its server gives it."""
    if not is_remote(path):
        status = os.stat(path)
        return {"size": status.st_size, "changed": status.st_mtime_ns}
    system, inside = file_system(path)
    answer = with_retries(lambda: system.info(inside), f"cannot read {path}")
    return {"size": answer.get("size"), "changed": str(answer.get("ETag", answer.get("LastModified", "")))}


def is_there(path: str) -> bool:
    """Whether a file or folder exists, here or on another machine."""
    if not is_remote(path):
        return os.path.exists(path)
    system, inside = file_system(path)
    system.invalidate_cache()
    return bool(with_retries(lambda: system.exists(inside), f"cannot read {path}"))


def store_of(path: str) -> Any:
    """The store for zarr to open: a folder, or one at an address."""
    if not is_remote(path):
        return path
    from zarr.storage import FsspecStore

    system, inside = file_system(path, asynchronous=True)
    return FsspecStore(system, path=inside, read_only=False)


def start_of_file(path: str) -> bytes:
    """The content of a file of metadata, or its first METADATA_BYTES bytes."""
    system, inside = file_system(path)
    return bytes(with_retries(lambda: system.cat_file(inside, start=0, end=METADATA_BYTES), f"cannot read {path}"))


def with_retries(work: Callable[[], Result], failure: str, *, retry: bool = True) -> Result:
    """The result of `work`, which is repeated a few times if it fails. Repetitions are logged.

    failure: the beginning of the error message
    retry:   whether to repeat; a local disk that fails will fail again
    """
    if not retry:
        return work()
    attempt, pause = 0, FIRST_PAUSE
    while True:
        attempt += 1
        try:
            return work()
        except (HedgerowError, MemoryError):
            raise
        except Exception as problem:
            cause = _cause_of(problem)
            if isinstance(cause, (HedgerowError, *NOT_THERE)):
                raise cause from None
            most = ATTEMPTS_IN_SILENCE if _is_silence(cause) else ATTEMPTS
            _refuse_final(cause, failure)
            if attempt >= most:
                # Not "from" the error of a library about an address, which would show a password in a traceback.
                raise InputError(f"{failure}: {_in_words(cause)}, {attempt} times in a row; try again later.") from None
        log.warning("%s: %s; retrying, attempt %d of %d", masked(failure), _in_words(cause), attempt + 1, most)
        time.sleep(pause)
        pause *= 2


def _cause_of(problem: Exception) -> Exception:
    """The cause of a failure: fsspec also reports a missing file if a web server did not answer."""
    cause = problem.__cause__
    if isinstance(cause, HedgerowError | TimeoutError) or type(cause).__module__.startswith("aiohttp"):
        return cause if isinstance(cause, Exception) else problem
    return problem


def _is_silence(problem: Exception) -> bool:
    return isinstance(problem, TimeoutError) or "Timeout" in type(problem).__name__


def _in_words(problem: Exception) -> str:
    return f"its server did not answer in time ({TIMEOUT_VARIABLE})" if _is_silence(problem) else one_line(problem)


def _refuse_final(problem: Exception, failure: str) -> None:
    """Raise InputError for a failure that repeating the request would not change."""
    if type(problem).__name__ in NO_KEYS:
        raise InputError(
            f"{failure}: {one_line(problem)}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in as your "
            "provider describes."
        ) from None
    if (where := REDIRECTS.get(type(problem).__name__)) is not None:
        raise InputError(f"{failure}: its server redirects {where}; check the address.") from None
    status = getattr(problem, "status", None)
    if status in REFUSED and status not in PASSED:
        raise InputError(
            f"{failure}: the server refused the request ({one_line(problem)}); check the address and your access."
        )


def open_file(path: str) -> Any:
    """Open a file, here or at an address, for reading in any order."""
    if not is_remote(path):
        return open(path, "rb")
    system, inside = file_system(path)
    return with_retries(lambda: system.open(inside, "rb"), f"cannot read {path}")
