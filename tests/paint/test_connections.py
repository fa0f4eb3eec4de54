"""Connections without a token: the server ends them, and they neither block others nor fill the log."""

import asyncio
import errno
import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from helpers.paint import Client, client_of, open_project, running, write_images  # skips where the extra is missing

from websockets.exceptions import WebSocketException  # isort: skip

from hedgerow.paint.connections import ConnectionLimits, QuietLoop, max_connections  # isort: skip
from hedgerow.paint.server import serving  # isort: skip


def connected(port, stack):
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))


def is_ended(opened):
    """Wait until the server ends a connection; False: it does not within the socket's timeout."""
    try:
        return opened.recv(2**16) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def is_open(opened):
    """Whether the server has not ended a connection yet."""
    opened.setblocking(False)
    try:
        return opened.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def again_if_ended(attempt):
    """The result of an attempt, which is repeated if a busy machine was too slow to send a header in time."""
    for _ in range(100):
        try:
            return attempt()
        except (OSError, EOFError, http.client.HTTPException, WebSocketException) as problem:
            last = problem
    raise last


def test_idle_connections_are_ended(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(0.3, 1000)) as server, ExitStack() as stack:
        waiting = [connected(server.port, stack) for _ in range(50)]
        assert all(map(is_ended, waiting))
        assert again_if_ended(lambda: client_of(server).get("/api/project"))[0] == 200


def test_a_header_that_never_ends_is_not_waited_for(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(0.3)) as server, ExitStack() as stack:
        opened = connected(server.port, stack)
        opened.settimeout(0.02)
        opened.sendall(b"GET / HTTP/1.1\r\n")
        ended = False
        for n in range(1000):
            try:
                opened.sendall(b"x-%d: y\r\n" % n)
            except ConnectionError:
                ended = True
            if ended or is_ended(opened):
                break
        else:
            pytest.fail("a header was read for 20 seconds")


def test_after_an_answer_the_next_header_has_its_own_time(tmp_path):
    limits = ConnectionLimits(60)
    with running(open_project(tmp_path), limits) as server, ExitStack() as stack:
        client, opened = client_of(server), connected(server.port, stack)
        asked = f"GET /api/project HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n\r\n"
        for seconds in (60, 60, 0.3):
            limits.header_seconds = seconds  # after this answer
            opened.sendall(asked.encode())
            answer = http.client.HTTPResponse(opened)
            answer.begin()
            assert (answer.status, json.loads(answer.read())["title"]) == (200, "project")
        with suppress(ConnectionError):  # it may have ended already
            opened.sendall(b"GET / HTTP/1.1\r\n")
        assert is_ended(opened)


@contextmanager
def serving_app(app, limits):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = serving(app, limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(20)


def test_an_answer_may_take_longer_than_a_header(tmp_path):
    async def slow(scope, receive, send):
        await asyncio.sleep(0.5)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await asyncio.sleep(0.5)
        await send({"type": "http.response.body", "body": b"ok"})

    def asked():
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as asking:
            asking.request("GET", "/")
            return asking.getresponse().read()

    with serving_app(slow, ConnectionLimits(0.1)) as port:
        assert again_if_ended(asked) == b"ok"


def test_an_open_window_is_no_idle_connection(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(0.1)) as server, ExitStack() as stack:
        window = again_if_ended(lambda: stack.enter_context(client_of(server).window()))
        window.hear("windows")
        assert is_ended(connected(server.port, stack))  # so that much time has passed
        assert window.paint()["say"] == "painted"


def test_many_connections_do_not_keep_the_page_out(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(60, 8)) as server, ExitStack() as stack:
        client = client_of(server)
        with client.window() as window:
            waiting = []
            for _ in range(40):
                waiting.append(connected(server.port, stack))
                if len(waiting) % 10 == 0:
                    assert client.get("/api/project")[0] == 200
            assert window.paint()["say"] == "painted"
        assert all(map(is_ended, waiting[:30]))
        assert sum(map(is_open, waiting)) <= 8


def test_where_all_connections_are_in_use_a_further_one_is_ended(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(60, 2)) as server, ExitStack() as stack:
        client = client_of(server)
        windows = [stack.enter_context(client.window()) for _ in range(2)]
        assert is_ended(connected(server.port, stack))
        assert [window.paint(id=f"u{n}")["say"] for n, window in enumerate(windows)] == ["painted"] * 2


def test_what_is_refused_without_a_token_is_not_asked_again_on_that_connection(tmp_path):
    with running(open_project(tmp_path), ConnectionLimits(60)) as server, ExitStack() as stack:
        opened = connected(server.port, stack)
        opened.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode() * 50)
        answer = b""
        while part := opened.recv(2**16):
            answer += part
        assert answer.count(b"HTTP/1.1 403") == 1


def test_a_request_whose_body_is_nonsense_is_answered_once_and_not_logged(tmp_path, caplog):
    with running(open_project(tmp_path)) as server, ExitStack() as stack:
        stack.callback(logging.getLogger("uvicorn.error").removeHandler, caplog.handler)
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)  # uvicorn keeps its records from the root's
        opened = connected(server.port, stack)
        head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        opened.sendall(head.encode() + b"nonsense\r\n")
        answer = b"".join(iter(lambda: opened.recv(2**16), b""))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert client_of(server).get("/api/project")[0] == 200
    assert "Exception in ASGI application" not in caplog.text


def test_that_nothing_can_be_accepted_is_logged_now_and_then(caplog):
    now = [100.0]
    quiet = QuietLoop(5.0, clock=lambda: now[0])
    full = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "Too many")}
    for _ in range(100):
        now[0] += 0.1
        quiet(None, full)
    assert [record.getMessage().count("Too many") for record in caplog.records] == [1, 1]
    assert not any(record.exc_info for record in caplog.records)


def test_other_errors_of_the_loop_are_reported_as_ever():
    seen = []

    class Loop:
        def default_exception_handler(self, context):
            seen.append(context)

    for problem in (OSError(errno.EIO, "I/O"), ValueError("x")):
        QuietLoop()(Loop(), {"message": "m", "exception": problem})
    QuietLoop()(Loop(), {"message": "m"})
    assert len(seen) == 3


LIMITED = """
import os, resource, socket, sys
from pathlib import Path
from websockets.exceptions import WebSocketException  # isort: skip

from hedgerow.paint.connections import ConnectionLimits
from hedgerow.paint.guarding import Guard
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.server import Server, serving

project = Project(Path(sys.argv[1]), image_files(sys.argv[2])[0])
server = Server(project)
with socket.create_server(("127.0.0.1", 0)) as listening:
    guard = Guard(server.app, "127.0.0.1", listening.getsockname()[1])
    served = serving(guard, ConnectionLimits(float(sys.argv[3]), int(sys.argv[4])))
    free = os.dup(0)  # the first number that is not in use
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 20, free + 20))
    print(guard.address, flush=True)
    served.run(sockets=[listening])
"""


@contextmanager
def with_few_files(tmp_path, limits):
    """A server that may open only 20 more files -> its client, and the file with its stderr."""
    write_images(tmp_path / "images")
    arguments = [tmp_path / "project", tmp_path / "images", limits.header_seconds, limits.connections]
    log = tmp_path / "stderr"
    with log.open("w") as stderr, subprocess.Popen(
        [sys.executable, "-c", LIMITED, *map(str, arguments)], stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as program:  # fmt: skip
        try:
            address, _, token = program.stdout.readline().strip().partition("/?token=")
            yield Client(int(address.rpartition(":")[2]), token), log
            assert program.poll() is None
        finally:
            program.kill()


def begin_many(port, stack, n):
    """Open this number of connections without waiting: beyond the system's backlog, `connect` would not return."""
    for _ in range(n):
        opened = stack.enter_context(socket.socket())
        opened.setblocking(False)
        assert opened.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS


def wait_until(holds, condition, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, condition
        time.sleep(0.1)


def answers(client):
    try:
        return client.get("/api/project")[0] == 200
    except OSError:  # the server has no file left, or has just ended the connection
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on open files")
def test_a_server_without_free_files_is_quiet_and_recovers(tmp_path):
    with with_few_files(tmp_path, ConnectionLimits(1.0, 10_000)) as (client, log), ExitStack() as stack:
        wait_until(lambda: answers(client), "it began")
        begin_many(client.port, stack, 100)
        wait_until(lambda: "Too many open files" in log.read_text(), "files ran out")
        wait_until(lambda: answers(client), "it recovered, although nobody closed the others")
        begin_many(client.port, stack, 100)
        stack.close()
        wait_until(lambda: answers(client), "it recovered once more")
        window = again_if_ended(lambda: stack.enter_context(client.window()))
        assert window.paint()["say"] == "painted"
        text = log.read_text()
        assert "Traceback" not in text
        assert text.count("\n") < 20


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on open files")
def test_the_limit_of_connections_keeps_files_free(monkeypatch):
    from hedgerow.paint import connections

    for soft, expected in ((64, 16), (256, 64), (8, 4), (10**6, 128), (connections.resource.RLIM_INFINITY, 128)):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert max_connections() == expected
