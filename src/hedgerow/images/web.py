"""Sends requests to web servers: only to the host in the address, and limits the length of answers.

Imports aiohttp, so this module is itself imported only when an address is read.
"""

import asyncio
import re
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import aiohttp
from yarl import URL

from hedgerow.errors import InputError
from hedgerow.images.file_checks import MOST_BYTES_READ
from hedgerow.memory import megabytes

WHOLE_ANSWER = 30  # an answer must be complete after this many times the timeout
SLOWEST = 1000  # bytes per second; an answer that takes longer than the timeout must come faster
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")
_LOGIN = re.compile(r"(https?://)([^/?#]*)@([^/?#@]+.*)", re.IGNORECASE)


def connection_to(path: str, seconds: float) -> tuple[str, dict[str, Any]]:
    """An address without user and password, and the options of a session with it; seconds: timeout"""
    timeout = aiohttp.ClientTimeout(seconds * WHOLE_ANSWER, sock_connect=seconds, sock_read=seconds)
    match = _LOGIN.fullmatch(path)
    if match is None:
        return path, {"timeout": timeout}
    user, _, password = match[2].partition(":")
    return match[1] + match[3], {"timeout": timeout, "auth": aiohttp.BasicAuth(unquote(user), unquote(password))}


async def session(timeout: aiohttp.ClientTimeout, **options: Any) -> aiohttp.ClientSession:
    """A connection with these limits, for fsspec."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_other_host)
    answer = type("_Answer", (_Limited,), {"patience": timeout.sock_read})
    return aiohttp.ClientSession(response_class=answer, trace_configs=[trace], timeout=timeout, **options)


async def _refuse_other_host(
    asking: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuse a redirect to another host before it is followed."""
    headers = redirect.response.headers
    there = redirect.url.join(URL(headers.get("Location") or headers.get("URI") or ""))  # aiohttp follows either
    is_safer = redirect.url.scheme == "http" and there.scheme == "https" and there.is_default_port()
    if there.host != redirect.url.host or (there.origin() != redirect.url.origin() and not is_safer):
        raise InputError(
            f"cannot read {redirect.url}: its server redirects to another host, {there.origin()}, which Hedgerow"
            " does not follow; use that address if you trust it."
        )


class _Limited(aiohttp.ClientResponse):
    """An answer that is read no further than was requested, whatever the server sends, and not if it only drips.

    patience: seconds in which the header must be complete; aiohttp's own limits begin anew with each byte
    """

    patience: float

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        return await asyncio.wait_for(super().start(connection), self.patience)

    async def read(self) -> bytes:
        if self._body is None:
            asked = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            most = int(asked[2]) - int(asked[1]) + 1 if asked else MOST_BYTES_READ.get()
            content, begin = bytearray(), time.monotonic()
            async for part in self.content.iter_any():
                content += part
                seconds = time.monotonic() - begin
                if seconds > self.patience and len(content) < SLOWEST * seconds:
                    self.close()
                    raise TimeoutError
                if len(content) > most:
                    self.close()
                    raise InputError(
                        f"cannot read {self.url}: its server sends more than the {megabytes(most)} allowed;"
                        " check the address, or copy the image first."
                    )
            self._body = bytes(content)
        return self._body
