"""What windows say to the page's server over their websocket: in this process, without a network."""

import asyncio
import copy
import json
import logging

import numpy as np

from fuzz import special
from fuzz.damage import damaged
from fuzz.outcomes import Failure, check_text, origin, require
from fuzz.projects import Projects
from fuzz.values import change, pick
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import Project
from hedgerow.paint.server import Server

MOST = 2**18  # bytes of a message: the server of the network lets no longer one through
WORDS = (
    *("view", "paint", "undo", "redo", "class", "live", "next", "train", "improve", "cancel", "export", "do", "id"),
    *("brush", "eraser", "line", "polygon", "fill", "labels", "model", "refine", "deep", "encoder:lite0", "=1+1"),
    *("image", "level", "rows", "cols", "tool", "radius", "points", "joins", "within", "name", "colour", "what", "s1"),
)
STROKE = {"do": "paint", "id": "m1", "image": 0, "tool": "brush", "class": 1, "radius": 2, "points": [[9, 9], [20, 30]]}
MESSAGES = (
    *(STROKE, STROKE, {**STROKE, "id": "m2", "tool": "line", "joins": "m1"}),
    {"do": "paint", "id": "m3", "image": 1, "tool": "polygon", "class": 0, "points": [[1, 1], [9.5, 30], [40, 2.125]]},
    {"do": "paint", "id": "m4", "image": 0, "tool": "fill", "class": 1, "points": [[5, 5]], "within": [0, 99, 0, 99]},
    {"do": "paint", "id": "m5", "image": 0, "tool": "eraser", "class": None, "radius": 9.5, "points": [[9, 9]]},
    {"do": "view", "image": 0, "level": 0, "rows": [0, 200], "cols": [0, 200]},
    *({"do": "undo"}, {"do": "redo"}, {"do": "live", "on": True}, {"do": "next", "image": None}, {"do": "train"}),
    *({"do": "class", "name": "new", "colour": "#123456"}, {"do": "class", "id": 1, "hidden": True, "locked": False}),
    *({"do": "improve", "how": "refine"}, {"do": "cancel", "job": "train"}, {"do": "export", "what": ["labels"]}),
    *({"do": "model", "number": 1}, {"do": "model", "number": None}),
)
DIGITS = "9" * 5000
TEXTUAL = (
    *("", " ", "{", "[]", "null", '"undo"', "[" * 100_000, '{"do":' * 20_000, '{"do":' * 900 + "1" + "}" * 900, DIGITS),
    *(
        '{"do": "undo", "do": "redo"}',
        f'{{"do": {DIGITS}}}',
        f'{{"do": "next", "image": {DIGITS}}}',
        "\ufeff{}",
        "\x00",
    ),
    *(f'{{"do": "view", "image": 0, "level": 0, "rows": [0, 1e999], "cols": [0, -{DIGITS}]}}', '{"do": "\ud800"}'),
    *('{"do": "paint", "id": "' + "x" * 200_000 + '"}', '{"do": "class", "name": "\\u202e\\u0000"}', "x" * (MOST + 1)),
    json.dumps({**STROKE, "id": "m6", "points": [[i % 300, i * 7 % 270] for i in range(4096)], "radius": 512}),
    json.dumps({**STROKE, "id": "m7", "tool": "polygon", "radius": None, "points": [[i, -i] for i in range(4096)]}),
    json.dumps({**STROKE, "id": "m8", "points": [[-200_000, -200_000], [400_000, 400_000]], "radius": 512}),
)


class Messages:
    """Makes and uses lists of messages, each {"text"} or {"bytes"} (hexadecimal), that one window sends."""

    name = "messages"

    def __init__(self, folder):
        self.projects = Projects(folder)
        self.heard = Logged()
        path = folder / "case" / "whole.json"
        path.write_text(json.dumps([{"text": json.dumps(message)} for message in MESSAGES]))
        self.use(path)  # which also loads what the worker needs, before its memory is limited

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        frames, done = [], []
        for _ in range(int(rng.integers(1, 5))):
            frame, how = _frame(rng)
            frames.append(frame)
            done.append(how)
        path = folder / "messages.json"
        path.write_text(json.dumps(frames))
        return path, ", ".join(done)

    def use(self, path):
        """Send them; all are answered or refused, the window goes on or is closed, and what was painted is there."""
        again = path.with_name("again")
        special.remove(again)
        special.copy(self.projects.base, again)
        frames = json.loads(path.read_text())
        self.heard.records.clear()
        server = Server(Project(again, self.projects.images))
        try:
            messages, is_open = asyncio.run(_spoken(server, frames))
            result = _state(server.session.project)
        finally:
            server.close()
        for message in messages:
            _check_said(message)
        require(not self.heard.records, f"logged: {self.heard.records[:1]!r:.500}", "the log of the server")
        if is_open:
            answers = [message for message in messages if message.get("id") == "last"]
            require(bool(answers) and answers[-1]["say"] == "painted", f"a stroke afterwards: {answers}")
        project = Project(again, self.projects.images)
        try:
            require(_state(project) == result, "another state after opening it again")
        finally:
            project.close()
        refusals = [message["why"] for message in messages if message["say"] == "refused"]
        if refusals:
            raise Refused(refusals[-1])


class Logged(logging.Handler):
    """Collects exceptions and errors that the server logs: it has no reason to, so anything is too much."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.records = []
        for name in ("hedgerow", "asyncio", "uvicorn", "uvicorn.error", "websockets"):
            logging.getLogger(name).addHandler(self)

    def emit(self, record):
        cause = record.exc_info[1] if record.exc_info else None
        if cause is None and record.levelno < logging.ERROR:
            return
        self.records.append(f"{record.getMessage()} {cause!r} {origin(cause) if cause else ''}")


async def _spoken(server, frames):
    """What a window was told while it sent frames and then a plain stroke, and whether it was open to the end."""
    messages, waiting, is_open = [], asyncio.Queue(), True

    async def send(event):
        nonlocal is_open
        if event["type"] == "websocket.send":
            messages.append(json.loads(event["text"]))
        elif event["type"] == "websocket.close":
            is_open = False

    last = {**STROKE, "id": "last", "class": server.session.project.classes[0].id, "points": [[250, 250]]}
    for frame in (*frames, {"text": json.dumps({"do": "live", "on": False})}, {"text": json.dumps(last)}):
        content = {"text": frame["text"]} if "text" in frame else {"bytes": bytes.fromhex(frame["bytes"])}
        if len(frame.get("text", frame.get("bytes", ""))) <= 2 * MOST:
            waiting.put_nowait({"type": "websocket.receive", **content})
    waiting.put_nowait({"type": "websocket.disconnect", "code": 1000})
    is_connected = False

    async def receive():
        nonlocal is_connected
        if not is_connected:
            is_connected = True
            return {"type": "websocket.connect"}
        if is_open:
            await asyncio.sleep(0)  # what was said goes out first
            return await waiting.get()
        return {"type": "websocket.disconnect", "code": 1008}

    scope = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "subprotocols": []}
    await server.app(scope, receive, send)
    window_open = is_open and not any("bytes" in frame for frame in frames)
    return messages, window_open


def _check_said(message):
    """What people are shown is one printable line."""
    if message.get("say") in ("refused", "failed"):
        check_text(message["why"], "a refusal")
    try:
        json.dumps(message, allow_nan=False)
    except ValueError as problem:
        raise Failure("message", f"no JSON: {message!r:.200}") from problem


def _state(project):
    labels = [np.asarray(one.whole()).tobytes() for one in project.labels]
    return labels, project.classes, project.paint_state, project.current_model


def _frame(rng):
    kind = rng.random()
    if kind < 0.12:
        text = pick(rng, TEXTUAL)
        return {"text": text}, f"{text!r:.30}"
    message = copy.deepcopy(pick(rng, MESSAGES))
    if kind < 0.25:
        return {"text": json.dumps(message)}, message["do"]
    if kind < 0.85:
        done = ", ".join(change(message, rng, WORDS) for _ in range(int(pick(rng, (1, 1, 2)))))
        return {"text": json.dumps(message)}, done
    content, done = damaged(json.dumps(message).encode(), rng)
    if kind < 0.95:
        return {"text": content.decode("utf-8", "replace")}, done
    return {"bytes": content.hex()}, f"bytes ({done})"
