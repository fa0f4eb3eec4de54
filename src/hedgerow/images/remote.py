"""Files on other machines, through fsspec: servers that fail are asked again, those that are silent not for long."""

import logging
import os
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

from hedgerow import extras
from hedgerow.errors import HedgerowError, InputError, masked
from hedgerow.files import one_line
from hedgerow.images.limits import METADATA_BYTES, number_from_environment

log = logging.getLogger("hedgerow")

Result = TypeVar("Result")
ATTEMPTS = 6
ATTEMPTS_IN_SILENCE = 3
TIMEOUT = "HEDGEROW_TIMEOUT"
DEFAULT_TIMEOUT = 20.0  # seconds without an answer, or without a further part of one
WHOLE_ANSWER = 30  # times that, until an answer must be complete
FIRST_PAUSE = 0.2  # seconds; each further one is twice as long
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)  # asking again would not help
NO_KEYS = ("NoCredentialsError", "PartialCredentialsError")  # of botocore, which may not be installed
REDIRECTS = {  # errors of aiohttp, which may not be installed
    "TooManyRedirects": "again and again",
    "InvalidUrlRedirectClientError": "to something that is no address",
}
REFUSED = range(400, 500)  # statuses of web servers that will be the same next time
PASSED = (408, 429)  # of these, but for a moment only
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
    if protocol == "s3" and "@" in path.partition("://")[2].partition("/")[0]:
        raise InputError(
            f"cannot read {path}: do not put keys in an address, where they would be stored and shown; set"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in as your provider says."
        )
    for package in ("fsspec", PROTOCOLS[protocol]):
        extras.require(package, f"{protocol}://")


def file_system(path: str, **options: Any) -> tuple[Any, str]:
    """fsspec's file system for an address, and the path on it. Keys and servers are those of the environment.

    What a user and a password in a web address say is sent to its server, and is not in the path.
    """
    import fsspec

    check_address(path)
    protocol = path.partition("://")[0].lower()
    seconds = number_from_environment(TIMEOUT, DEFAULT_TIMEOUT, "60 for a minute")
    if protocol == "s3":
        once = {"total_max_attempts": 1}  # it is asked again by `patiently`
        options["config_kwargs"] = {"connect_timeout": seconds, "read_timeout": seconds, "retries": once}
    else:
        path, options["client_kwargs"] = _for_the_web(path, seconds)
        options["get_client"] = _session
    system, inside = fsspec.core.url_to_fs(path, **options)
    if protocol == "s3":
        system.retries = 1
    return system, inside


def _session(**options: Any) -> Any:
    """What fsspec awaits for a connection."""
    from hedgerow.images.web import session

    return session(**options)


def _for_the_web(path: str, seconds: float) -> tuple[str, dict[str, Any]]:
    """An address without user and password, and what aiohttp is given for it."""
    import aiohttp

    options: dict[str, Any] = {
        "timeout": aiohttp.ClientTimeout(seconds * WHOLE_ANSWER, sock_connect=seconds, sock_read=seconds)
    }
    match = re.fullmatch(r"(https?://)([^/?#]*)@([^/?#@]+.*)", path, re.IGNORECASE)
    if match is None:
        return path, options
    user, _, password = match[2].partition(":")
    return match[1] + match[3], options | {"auth": aiohttp.BasicAuth(unquote(user), unquote(password))}


def identity_of_file(path: str) -> dict[str, Any]:
    """What changes with a file: its size, and when it was written or what its server says of it."""
    if not is_remote(path):
        status = os.stat(path)
        return {"size": status.st_size, "changed": status.st_mtime_ns}
    system, inside = file_system(path)
    answer = patiently(lambda: system.info(inside), f"cannot read {path}")
    return {"size": answer.get("size"), "changed": str(answer.get("ETag", answer.get("LastModified", "")))}


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

    system, inside = file_system(path, asynchronous=True)
    return FsspecStore(system, path=inside, read_only=False)


def start_of_file(path: str) -> bytes:
    """What a file of metadata holds; no more than METADATA_BYTES are fetched, of which it has fewer."""
    system, inside = file_system(path)
    return bytes(patiently(lambda: system.cat_file(inside, start=0, end=METADATA_BYTES), f"cannot read {path}"))


def patiently(work: Callable[[], Result], failure: str, *, is_asked: bool = True) -> Result:
    """What `work` returns; on another machine, asked again a few times if it fails, which is logged.

    failure:  for the sentence, if it fails to the end
    is_asked: whether to ask again; a local disk that fails will fail again
    """
    if not is_asked:
        return work()
    attempt, pause = 0, FIRST_PAUSE
    while True:
        attempt += 1
        try:
            return work()
        except (HedgerowError, MemoryError):
            raise
        except Exception as problem:
            last = _behind(problem)
            if isinstance(last, (HedgerowError, *NOT_THERE)):
                raise last from None
            most = ATTEMPTS_IN_SILENCE if _is_silence(last) else ATTEMPTS
            _refuse_final(last, failure)
            if attempt >= most:
                # Not "from" an error that a library raised about an address: it would show a password in a traceback.
                raise InputError(f"{failure}: {_words(last)}, {attempt} times in a row; try again later.") from None
        log.warning("%s: %s; retrying, attempt %d of %d", masked(failure), _words(last), attempt + 1, most)
        time.sleep(pause)
        pause *= 2


def _behind(problem: Exception) -> Exception:
    """The failure itself: fsspec also says that there is no such file where a web server did not answer."""
    cause = problem.__cause__
    if isinstance(cause, HedgerowError | TimeoutError) or type(cause).__module__.startswith("aiohttp"):
        return cause if isinstance(cause, Exception) else problem
    return problem


def _is_silence(problem: Exception) -> bool:
    return isinstance(problem, TimeoutError) or "Timeout" in type(problem).__name__


def _words(problem: Exception) -> str:
    return f"its server did not answer in time ({TIMEOUT})" if _is_silence(problem) else one_line(problem)


def _refuse_final(problem: Exception, failure: str) -> None:
    """Raise InputError for a failure that would be the same next time."""
    if type(problem).__name__ in NO_KEYS:
        raise InputError(
            f"{failure}: {one_line(problem)}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in as your "
            "provider says."
        ) from None
    if (where := REDIRECTS.get(type(problem).__name__)) is not None:
        raise InputError(f"{failure}: its server redirects {where}; check the address.") from None
    status = getattr(problem, "status", None)
    if status in REFUSED and status not in PASSED:
        raise InputError(
            f"{failure}: the server refused the request ({one_line(problem)}); check the address and your access."
        )


def open_file(path: str) -> Any:
    """A file, here or at an address, to be read in any order."""
    if not is_remote(path):
        return open(path, "rb")
    system, inside = file_system(path)
    return patiently(lambda: system.open(inside, "rb"), f"cannot read {path}")
