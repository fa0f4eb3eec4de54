"""Access to the server: only with the token, from the server's own page, and by the server's own name.

Any other page in the same browser can send requests to 127.0.0.1. But it does not know the token, its Origin is not
ours, and neither is a name that it resolves to 127.0.0.1.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_NAMES = ("127.0.0.1", "localhost")
ANY_ADDRESS = ("0.0.0.0", "::")  # addresses to listen on that mean all of them
MAX_QUERY_BYTES = 400
MAX_PATH_LENGTH = 400  # the longest paths are those of exported files
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
    """Wraps the application: refuses foreign requests, and adds headers to every response."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None = None) -> None:
        self._app, self._host, self._port = app, host, port
        self.token = token or secrets.token_urlsafe(32)
        self.cookie = f"hedgerow_{port}"

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        shown = LOCAL_NAMES[0] if self._host in ANY_ADDRESS else self._host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self._port}/?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        elif scope["path"] == "/" and (token := QueryParams(scope["query_string"]).get("token")):
            if secrets.compare_digest(token.encode(), self.token.encode()):
                cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                answer = _response(303, "", {"location": "/", "set-cookie": cookie})
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
        return origins[0] == f"http://{hosts[0]}"

    def _is_our_name(self, host: str) -> bool:
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
        socket = f"ws://{host}" if self._is_our_name(host) else ""
        added = {**HEADERS, "content-security-policy": POLICY.format(socket)}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in added.items():
                    headers.setdefault(name, text)
            await send(message)

        return sending


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
