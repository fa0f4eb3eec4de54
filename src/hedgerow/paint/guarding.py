"""Access to the server: only with the token, from the server's own page, and by the server's own name.

Any other page in the same browser can send requests to 127.0.0.1. But it does not know the token, its Origin is not
ours, and neither is a name that it resolves to 127.0.0.1.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hedgerow.files import atomic_path
from hedgerow.paint.project_file import first_bytes, foreign

TOKEN = "token"  # file of a project
LOCAL_NAMES = ("127.0.0.1", "localhost")
ANY_ADDRESS = ("0.0.0.0", "::")  # addresses to listen on that mean all of them
MAX_QUERY_BYTES = 400
MAX_PATH_LENGTH = 400  # the longest paths are those of exported files
MAX_HEADER_BYTES = 2**15  # of all lines of a request's header
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self' {}; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Guard:
    """Wraps the application: refuses foreign requests, and adds headers to every response.

    hosts:     further names by which the page is reached, as "localhost:9000" through a tunnel or "hub.example.org"
    base_path: of the page behind a proxy, such as "/user/me/proxy/8000/"; the proxy may strip it or not
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        token: str | None = None,
        hosts: Collection[str] = (),
        base_path: str = "/",
    ) -> None:
        self._app, self._host, self._port = app, host, port
        self._hosts, self._base_path = {name.lower() for name in hosts}, f"/{base_path.strip('/')}/".replace("//", "/")
        self.token = token or secrets.token_urlsafe(32)
        self.cookie = f"hedgerow_{port}"

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        shown = LOCAL_NAMES[0] if self._host in ANY_ADDRESS else self._host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self._port}{self._base_path}?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["path"].startswith(self._base_path):
            scope = {**scope, "path": "/" + scope["path"].removeprefix(self._base_path)}
        if scope["type"] == "http":
            await self._http(scope, receive, self._with_headers(send, scope))
        elif scope["type"] == "websocket":
            if scope["path"] == "/ws" and self._is_ours(scope, needs_origin=True) and self._has_cookie(scope):
                await self._app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._app
        if not self._is_ours(scope, needs_origin=False):
            answer = _response(403, "The host or the origin of the request is not this server.")
        elif scope["method"] not in ("GET", "HEAD"):
            answer = _response(405, "Only GET and HEAD requests are answered.")
        elif len(scope["query_string"]) > MAX_QUERY_BYTES or len(scope["path"]) > MAX_PATH_LENGTH:
            answer = _response(414, "The address is too long.")
        elif sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            answer = _response(431, f"The header of the request has more than {MAX_HEADER_BYTES:,} bytes.")
        elif scope["path"] == "/" and (token := QueryParams(scope["query_string"]).get("token")):
            if secrets.compare_digest(token.encode(), self.token.encode()):
                cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path={self._base_path}"
                answer = _response(303, "", {"location": self._base_path, "set-cookie": cookie})
            else:
                answer = _response(403, "The token is not the one that this server printed.")
        elif not self._has_cookie(scope):
            answer = _response(403, "Open the address that `hedgerow paint` printed, with its token.")
        await answer(scope, receive, send)

    def _is_ours(self, scope: Scope, *, needs_origin: bool) -> bool:
        hosts, origins = (Headers(scope=scope).getlist(name) for name in ("host", "origin"))
        if len(hosts) != 1 or not self._is_our_name(hosts[0]) or len(origins) > 1:
            return False
        if not origins:
            return not needs_origin
        stated = (f"{scheme}://{name}" for scheme in ("http", "https") for name in self._hosts)
        return origins[0] in (f"http://{hosts[0]}", *stated)

    def _is_our_name(self, host: str) -> bool:
        if host.lower() in self._hosts:
            return True
        name, _, port = host.rpartition(":")
        if port != str(self._port):
            return False
        if name in LOCAL_NAMES or name == self._host or name == f"[{self._host}]":
            return True
        return self._host in ANY_ADDRESS and _is_number(name.strip("[]"))

    def _has_cookie(self, scope: Scope) -> bool:
        for text in Headers(scope=scope).getlist("cookie"):
            for pair in text.split(";"):  # other programs on this machine set cookies too, in other formats
                name, _, value = pair.partition("=")
                if name.strip() == self.cookie and secrets.compare_digest(value.strip().encode(), self.token.encode()):
                    return True
        return False

    def _with_headers(self, send: Send, scope: Scope) -> Send:
        host = Headers(scope=scope).get("host", "")
        socket = f"ws://{host} wss://{host}" if self._is_our_name(host) else ""
        added = {**HEADERS, "content-security-policy": POLICY.format(socket)}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in added.items():
                    headers.setdefault(name, text)
            await send(message)

        return sending


def project_token(folder: Path) -> str:
    """The token of a project, the same at every start, so that open pages connect again; only its user can read it."""
    path = folder / TOKEN
    content = first_bytes(path, 100)
    if content is not None and not re.fullmatch(rb"[\w-]{43}\n", content):
        raise foreign(path, "it has other content")
    if content is not None and not (os.name == "posix" and path.stat().st_mode & 0o077):
        return content.decode().strip()
    token = secrets.token_urlsafe(32)
    with (
        atomic_path(path) as temporary,
        open(temporary, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file,
    ):
        file.write(token + "\n")
    return token


def _is_number(name: str) -> bool:
    """Whether a host is a numeric address, rather than a name that someone else could have pointed here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _response(status: int, text: str, headers: Mapping[str, str] | None = None) -> PlainTextResponse:
    # A refused client may send requests without end and never read the responses: its connection is closed.
    return PlainTextResponse(text, status, {"connection": "close", **(headers or {})})
