"""A project to paint on, its server, and a window without a browser."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

for _package in ("starlette", "uvicorn", "websockets"):
    pytest.importorskip(_package, reason="the extra paint is not installed")

from websockets.sync.client import connect

from hedgerow.images.writing import write_labels
from hedgerow.paint import raster
from hedgerow.paint.engine import Engine
from hedgerow.paint.guarding import Guard
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.server import Server, serving


def drawn(seed=0, size=(96, 120)):
    """An image (H,W) uint8 of three areas that differ in brightness and grain, and their classes."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(size, np.uint8)
    truth[:, size[1] // 3 :] = 1
    truth[size[0] // 2 :, 2 * size[1] // 3 :] = 2
    return (40 + 70 * truth + rng.normal(0, 12, size)).clip(0, 255).astype(np.uint8), truth


def write_images(folder, n=1, size=(96, 120)):
    folder.mkdir(exist_ok=True)
    for i in range(n):
        write_labels(folder / f"a{i}.png", drawn(i, size)[0])
    return folder


def open_project(tmp_path, n=1, size=(96, 120)):
    return Project(tmp_path / "project", image_files(write_images(tmp_path / "images", n, size))[0])


def stroke(id="u1", image=0, tool="brush", value=1, radius=2, points=((10, 10), (20, 30)), **more):
    """A message to paint."""
    message = {"do": "paint", "id": id, "image": image, "tool": tool, "points": [list(point) for point in points]}
    if tool != "eraser":
        message["class"] = value
    if tool not in ("polygon", "fill"):
        message["radius"] = radius
    return {**message, **more}


class Running:
    """A server that runs in a thread of this process."""

    def __init__(self, project, limits=None, **options):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.server = Server(project, **options)
        self.guard = Guard(self.server.app, "127.0.0.1", self.port)
        self.uvicorn = serving(self.guard, limits)
        self.server.start()
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [self.listening]}, daemon=True)
        self.thread.start()

    def close(self):
        self.uvicorn.should_exit = True
        self.thread.join(20)
        self.server.close()
        self.listening.close()


@contextmanager
def running(project, limits=None, **options):
    server = Running(project, limits, **options)
    try:
        yield server
    finally:
        server.close()


class Client:
    """What a browser does, with headers of one's own choice."""

    def __init__(self, port, token):
        self.port, self.token = port, token
        self.origin = f"http://127.0.0.1:{port}"
        self.cookie = f"hedgerow_{port}={token}"

    def get(self, path, method="GET", **headers):
        """(status, headers, body); a header of None is left out."""
        wanted = {"Cookie": self.cookie, **headers}
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        asking.putrequest(method, path, skip_host="Host" in wanted)
        for name, value in wanted.items():
            if value is not None:
                asking.putheader(name, value)
        asking.endheaders()
        answer = asking.getresponse()
        body = answer.read()
        asking.close()
        return answer.status, answer.headers, body

    def json(self, path):
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def array(self, path):
        """A tile, or None where there is none."""
        status, headers, body = self.get(path)
        if status in (204, 404):
            return None
        assert status == 200, body
        return np.frombuffer(body, "<" + headers["x-type"]).reshape([int(n) for n in headers["x-shape"].split(",")])

    def overlay(self, result, place=(0, 0), size=(256, 256), image=0, level=0, kind="classes"):
        """A tile of a result, or None where there is none."""
        row, column = place
        path = f"/api/images/{image}/overlay/{result}/{level}?tiles={row}.{column}&what={kind}"
        status, headers, body = self.get(path)
        assert status == 200, body
        return np.frombuffer(body, np.uint8).reshape(size) if headers["x-known"] == "1" else None

    @contextmanager
    def window(self, **headers):
        wanted = {"Cookie": self.cookie, **headers}
        origin = wanted.pop("Origin", self.origin)
        with connect(
            f"ws://127.0.0.1:{self.port}/ws",
            origin=origin,
            additional_headers={name: value for name, value in wanted.items() if value is not None},
            open_timeout=30,
            close_timeout=2,
            max_size=2**24,
            max_queue=None,  # else a window that does not listen misses the server's goodbye, and waits for it
            proxy=None,
        ) as opened:
            yield SocketWindow(opened)


class SocketWindow:
    """An open websocket that speaks JSON."""

    def __init__(self, opened):
        self.opened = opened
        self.heard = []

    def say(self, message):
        self.opened.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def hear(self, *says, seconds=60, **wanted):
        """The next message that says one of these and has these fields; others are kept in `heard`."""
        until = time.monotonic() + seconds
        while True:
            message = json.loads(self.opened.recv(timeout=max(until - time.monotonic(), 0.01)))
            self.heard.append(message)
            if message["say"] in says and all(message.get(name) == value for name, value in wanted.items()):
                return message

    def paint(self, **fields):
        """Paint a stroke and wait for the answer."""
        message = stroke(**fields)
        self.say(message)
        return self.hear("painted", "refused", id=message["id"])


def client_of(server):
    return Client(server.port, server.guard.token)


class Listener:
    """A link to no worker: notes messages and overlays."""

    def __init__(self):
        self.messages, self.shown, self.is_urgent = [], [], False

    def broadcast(self, message):
        self.messages.append(message)

    def progress(self, job, text, done, total, began):
        self.messages.append({"say": "progress", "job": job, "done": done, "total": total})

    def show(self, overlay, region, seconds):
        self.shown.append(overlay)

    def newest(self, image):
        return next((one for one in reversed(self.shown) if one.image == image), None)

    def has_urgent_work(self):
        return self.is_urgent

    raise_if_interrupted = Engine.raise_if_interrupted


def paint_strokes(project, image=0, strokes=((0, 40, 40), (1, 60, 300), (0, 300, 60), (1, 150, 400))):
    """Paint (class, row, column) without a journal."""
    for value, row, column in strokes:
        size = project.images[image].size
        project.labels[image].paint(raster.covered([[row, column], [row + 30, column + 20]], 4, size), value)
