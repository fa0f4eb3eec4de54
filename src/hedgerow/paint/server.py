"""The server of the page: static files, tiles, and one websocket per window."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
import socket
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from hedgerow.errors import HedgerowError
from hedgerow.paint.connections import (
    MAX_WAITING_TO_CONNECT,
    Connection,
    ConnectionLimits,
    PageServer,
    is_worth_logging,
)
from hedgerow.paint.exports import exported_file
from hedgerow.paint.guarding import Guard, project_token
from hedgerow.paint.messages import MAX_BYTES, Refused, parse
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid, n_levels
from hedgerow.paint.session import Message, Session

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
MAX_WINDOWS = 16
MAX_CHANNELS_PER_TILE = 8
MAX_TILES = 32  # of an overlay in one response
MESSAGES_PER_SECOND, MESSAGE_BURST = 100, 300  # of one window; faster messages wait
MAX_UNREAD_MESSAGES = 2000  # to one window


class PageWindow:
    """An open page, and the messages that wait to be sent to it."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self.unsent: asyncio.Queue[str] = asyncio.Queue(MAX_UNREAD_MESSAGES)

    def send(self, text: str) -> None:
        if self.unsent.full():
            self.unsent.get_nowait()  # a window that was suspended gets the newest messages when it wakes
        self.unsent.put_nowait(text)


class Server:
    """The application: `app` is run by an ASGI server; close this object when that has ended.

    message_burst: how many messages of a window are handled without delay; then `messages_per_second`
    options:       of the `Session`
    """

    def __init__(
        self,
        project: Project,
        *,
        messages_per_second: float = MESSAGES_PER_SECOND,
        message_burst: float = MESSAGE_BURST,
        **options: Any,
    ) -> None:
        self.session = Session(project, self._broadcast, **options)
        self._messages_per_second, self._message_burst = messages_per_second, message_burst
        self.windows: list[PageWindow] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._message_thread = ThreadPoolExecutor(1, "hedgerow-messages")  # strokes are saved one after another
        self._files, self._index = static_files(), (STATIC / "index.html").read_text(encoding="utf-8")
        self._version = version_of(self._files)
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/static/{name:path}", self._file),
                Route("/api/project", self._project),
                Route("/api/images/{image:int}/thumbnail", self._thumbnail),
                Route("/api/images/{image:int}/tile/{level:int}/{row:int}/{column:int}", self._tile),
                Route("/api/images/{image:int}/labels/{level:int}/{row:int}/{column:int}", self._labels),
                Route("/api/images/{image:int}/overlay/{result:int}/{level:int}", self._overlay),
                Route("/api/exports/{number:int}/{name}", self._export),
                WebSocketRoute("/ws", self._serve_window),
            ],
            exception_handlers={
                HedgerowError: lambda request, problem: Response(str(problem), 404, media_type="text/plain")
            },
        )

    def start(self) -> None:
        self.session.start()

    def close(self) -> None:
        self._message_thread.shutdown()
        self.session.close()

    def _broadcast(self, message: Message) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._send_to_all, json.dumps(message))

    def _send_to_all(self, text: str) -> None:
        for window in self.windows:
            window.send(text)

    def _page(self, request: Request) -> Response:
        """The page, in the theme of the project; the addresses of its files change with their content."""
        page = self._index.replace('="static/', f'="static/{self._version}/')
        theme = self.session.project.page_settings.get("theme")
        page = page.replace("<html ", f'<html data-theme="{theme}" ', 1) if theme else page
        return Response(page, media_type=MEDIA_TYPES[".html"])

    def _file(self, request: Request) -> Response:
        """A file of the table; no path is ever built from a requested name."""
        name = request.path_params["name"]
        current = name.removeprefix(f"{self._version}/")
        if current not in self._files:
            raise _missing("file")
        path, media_type = self._files[current]
        caching = {} if current == name else {"cache-control": "private, max-age=31536000, immutable"}
        return Response(path.read_bytes(), media_type=media_type, headers=caching)

    def _project(self, request: Request) -> Response:
        return JSONResponse(self.session.described(len(self.windows)))

    def _pyramid(self, request: Request) -> Pyramid:
        image = request.path_params["image"]
        if image >= len(self.session.project.images):
            raise _missing("image")
        return self.session.codes.pyramid(image)

    def _thumbnail(self, request: Request) -> Response:
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(self._pyramid(request).thumbnail()).save(file, format="PNG")
        return Response(file.getvalue(), media_type="image/png")

    def _tile(self, request: Request) -> Response:
        pyramid = self._pyramid(request)
        _, level, row, column = _place(request)
        if level >= pyramid.n_levels:
            raise _missing("tile")
        channels = _channels(request.query_params.get("channels"), pyramid.image.n_channels)
        tile = pyramid.tile(level, row, column, channels)
        if tile is None:
            raise _missing("tile")
        contrast = {"X-Range": json.dumps(pyramid.contrast)} if "range" in request.query_params else {}
        return _array(tile, pyramid.type, contrast)

    def _labels(self, request: Request) -> Response:
        image, level, row, column = _place(request)
        project = self.session.project
        if image >= len(project.images) or level >= n_levels(project.images[image].size):
            raise _missing("tile")
        with project.lock:
            tile = project.labels[image].shrunk(level, row, column)
        return Response(status_code=204) if tile is None else _array(tile, "u1", {})

    def _overlay(self, request: Request) -> Response:
        """Several tiles in one response: one request per tile would take longer than its pixels."""
        image, level = request.path_params["image"], request.path_params["level"]
        overlay = self.session.engine.overlay(image, request.path_params["result"])
        if overlay is None:
            is_old = self.session.engine.newest(image) is not None
            raise HTTPException(410, "a newer result has replaced it") if is_old else _missing("result")
        kind = request.query_params.get("what", "classes")
        value = request.query_params.get("class", "0")
        places = _places(request.query_params.get("tiles", ""))
        if kind not in ("classes", "uncertainty", "proba") or not (value.isdecimal() and len(value) <= 3):
            raise HTTPException(400, "what must be classes, uncertainty or proba, and class a number")
        if level >= n_levels(overlay.size):
            raise _missing("tile")
        tiles = [overlay.tile(level, *place, kind, int(value)) for place in places]
        known = "".join("0" if tile is None else "1" for tile in tiles)
        return _raw(b"".join(tile.tobytes() for tile in tiles if tile is not None), {"X-Known": known})

    def _export(self, request: Request) -> Response:
        path = exported_file(self.session.project, request.path_params["number"], request.path_params["name"])
        if path is None:
            raise _missing("file")
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    async def _serve_window(self, websocket: WebSocket) -> None:
        self._loop = asyncio.get_running_loop()
        if len(self.windows) >= MAX_WINDOWS:
            await websocket.close(1013)
            return
        await websocket.accept()
        window = PageWindow(websocket)
        self.windows.append(window)
        for message in list(self.session.engine.latest.values()):
            window.send(json.dumps(message))
        self._send_to_all(json.dumps({"say": "windows", "n": len(self.windows)}))
        sender = asyncio.create_task(self._send(window))
        try:
            await self._receive(window)
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            sender.cancel()
            self.windows.remove(window)
            self._send_to_all(json.dumps({"say": "windows", "n": len(self.windows)}))

    async def _send(self, window: PageWindow) -> None:
        while True:
            await window.websocket.send_text(await window.unsent.get())

    async def _receive(self, window: PageWindow) -> None:
        loop = asyncio.get_running_loop()
        allowed, at = float(self._message_burst), time.monotonic()
        while True:
            text = await _message(window.websocket)
            now = time.monotonic()
            allowed, at = min(allowed + (now - at) * self._messages_per_second, self._message_burst) - 1, now
            if allowed < 0:
                await asyncio.sleep(-allowed / self._messages_per_second)
            try:
                message = parse(text)
                reply, to_all = await loop.run_in_executor(self._message_thread, self.session.handle, message)
            except HedgerowError as problem:
                id = problem.id if isinstance(problem, Refused) else message.get("id")
                asks = {"asks": problem.asks} if isinstance(problem, Refused) and problem.asks else {}
                window.send(json.dumps({"say": "refused", "id": id, "why": str(problem), **asks}))
                continue
            if reply is not None:
                window.send(json.dumps(reply))
            if to_all is not None:
                self._send_to_all(json.dumps(to_all))


async def _message(websocket: WebSocket) -> str | bytes:
    """The next message: bytes if the frame is binary."""
    received = await websocket.receive()
    if received["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(received.get("code", 1000))
    return received["bytes"] if received.get("text") is None else received["text"]


def static_files() -> dict[str, tuple[Path, str]]:
    """Name -> file and media type of all files that the page may load, listed when the server starts."""
    files = [path for path in sorted(STATIC.rglob("*")) if path.suffix in MEDIA_TYPES and path.is_file()]
    return {path.relative_to(STATIC).as_posix(): (path, MEDIA_TYPES[path.suffix]) for path in files}


def version_of(files: dict[str, tuple[Path, str]]) -> str:
    """Identifies the content of files."""
    content = hashlib.blake2b(digest_size=8)
    for name, (path, _) in files.items():
        content.update(f"{name} {path.stat().st_size} ".encode() + path.read_bytes())
    return content.hexdigest()


def serving(app: Any, limits: ConnectionLimits | None = None) -> PageServer:
    """A uvicorn server for an application, with limits on connections and messages."""
    logging.getLogger("uvicorn.error").addFilter(is_worth_logging)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        loop="asyncio",
        http=partial(Connection, limits or ConnectionLimits()),  # type: ignore[arg-type]  # it is only ever called
        backlog=MAX_WAITING_TO_CONNECT,
        ws="websockets-sansio",
        ws_max_size=MAX_BYTES,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=2**15,
        timeout_graceful_shutdown=2,
    )
    return PageServer(config)


def run_server(
    project: Project,
    listening: socket.socket,
    host: str,
    ready: Callable[[str], None],
    hosts: Collection[str] = (),
    base_path: str = "/",
) -> None:
    """Serve a project until the program is interrupted. ready: called with the address to open; for the others see
    `Guard`"""
    token = project_token(project.folder)
    server = Server(project)
    guard = Guard(server.app, host, listening.getsockname()[1], token, hosts, base_path)
    project.folder_lock.note(guard.address.partition("?")[0])
    server.start()
    try:
        ready(guard.address)
        serving(guard).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
        listening.close()


def _place(request: Request) -> tuple[int, int, int, int]:
    image, level, row, column = (request.path_params[name] for name in ("image", "level", "row", "column"))
    return image, level, row, column


def _places(text: str) -> list[tuple[int, int]]:
    """Rows and columns of tiles from text like "0.0,0.1"; raises HTTPException."""
    parts = [part.split(".") for part in text.split(",")]
    is_valid = all(len(part) == 2 and all(map(_is_number, part)) for part in parts)
    if len(parts) > MAX_TILES or not is_valid:
        raise HTTPException(400, f"tiles are ROW.COLUMN, at most {MAX_TILES} of them")
    return [(int(row), int(column)) for row, column in parts]


def _channels(text: str | None, n_channels: int) -> list[int]:
    """The requested channels, or the first ones; raises HTTPException."""
    if text is None:
        return list(range(3 if n_channels >= 3 else 1))
    parts = text.split(",")
    if len(parts) > MAX_CHANNELS_PER_TILE or not all(_is_number(part) and int(part) < n_channels for part in parts):
        raise HTTPException(400, "channels are numbers of the image's channels")
    return list(map(int, parts))


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 7


def _raw(content: bytes, headers: dict[str, str]) -> Response:
    return Response(content, media_type="application/octet-stream", headers=headers)


def _array(tile: np.ndarray, type: str, headers: dict[str, str]) -> Response:
    shape = ",".join(map(str, tile.shape))
    return _raw(np.ascontiguousarray(tile, f"<{type}").tobytes(), {"X-Shape": shape, "X-Type": type, **headers})


def _missing(what: str) -> HTTPException:
    return HTTPException(404, f"there is no such {what}.")
