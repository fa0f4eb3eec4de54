"""Limits on connections to the server: how many may be open, how long each may be idle, and how much is logged.

Any program on this machine can connect without the token. Such connections must neither keep the page from being served
nor fill the disk with log entries.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform != "win32":
    import resource

log = logging.getLogger("hedgerow")
HEADER_SECONDS = 10.0
MAX_CONNECTIONS = 128
MAX_WAITING_TO_CONNECT = 32  # the backlog of the listening socket
SECONDS_BETWEEN_LOGS = 5.0
MAX_WEBSOCKET_LINE, MAX_WEBSOCKET_LINES = (
    8000,
    120,
)  # bytes and number of lines in a header; websockets has these limits
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def max_connections() -> int:
    """At most a quarter of the open files that this process may have, so that images can be read and projects saved."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(4, min(soft // 4, MAX_CONNECTIONS))


@dataclass
class ConnectionLimits:
    """The limits that connections to one server share.

    header_seconds: from the start of a connection, or the end of a response, to the end of the next request's header
    connections:    at most this many; one more replaces the connection that has been idle longest
    waiting:        the idle connections, those idle longest first
    """

    header_seconds: float = HEADER_SECONDS
    connections: int = field(default_factory=max_connections)
    waiting: dict[Connection, asyncio.TimerHandle] = field(default_factory=dict)


class Connection(H11Protocol):
    """An HTTP connection that is closed if no request arrives in time or too many connections are open."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            next(iter(self._limits.waiting), self)._abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_waiting()
        lines = [len(name) + len(value) for name, value in event.headers]
        if max(lines) > MAX_WEBSOCKET_LINE or len(lines) > MAX_WEBSOCKET_LINES:
            self.send_400_response("The header of the request is too long.")  # the library would never answer
            return
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True  # the request before the invalid one can no longer be answered

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _wait(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._limits.waiting[self] = self.loop.call_later(self._limits.header_seconds, self._abort)

    def _abort(self) -> None:
        self._stop_waiting()  # now: others may connect before connection_lost is called
        self.transport.abort()

    def _stop_waiting(self) -> None:
        timer = self._limits.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()


class QuietLoop:
    """An exception handler of an event loop that logs exhausted resources in one line every few seconds.

    asyncio retries accepting connections by itself, and would log each attempt with a traceback.
    """

    def __init__(self, seconds: float = SECONDS_BETWEEN_LOGS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = -float("inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if not (isinstance(problem, OSError) and problem.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
        elif self._clock() >= self._next:
            self._next = self._clock() + self._seconds
            log.warning("paint: no connection can be accepted for now (%s); close other windows", problem.strerror)


class PageServer(uvicorn.Server):
    """A uvicorn server that does not flood the log when it cannot accept connections."""

    async def startup(self, sockets: Any = None) -> None:
        asyncio.get_running_loop().set_exception_handler(QuietLoop())
        await super().startup(sockets)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """False for log records about invalid requests: a client that sends many of them could fill the log."""
    return not str(record.msg).startswith(("Invalid HTTP", "Invalid UTF-8", "Unsupported upgrade", "No supported"))
