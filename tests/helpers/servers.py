"""Small servers for tests: S3 by moto, and plain files over HTTP that fail now and then; and clients' event loops."""

import http.client
import http.server
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


def in_thread(work: Callable):
    """The result of work in a thread of its own: after a test with a browser, this one has a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextmanager
def serving(server):
    """It answers while the block runs."""
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def s3(monkeypatch):
    """The name of an empty bucket on a server of this machine."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "bucket"
    finally:
        server.stop()


class _Files(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; every n-th answer is an error of the server, and ranges are understood."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # the name that the library calls
        self.server.n_asked += 1
        self.server.heard.append(self.headers.get("Authorization"))
        every = self.server.fails_every
        if every and self.server.n_asked % every == 0:
            self.server.n_failed += 1
            self.send_error(503)
            return
        before, after = self.server.moved
        if before and self.path.startswith(before):
            self.send_response(302)
            self.send_header("Location", self.path.replace(before, after, 1))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path = self.translate_path(self.path)
        if not os.path.isfile(path):
            self.send_error(404)
            return
        with open(path, "rb") as file:
            content = file.read()
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) if last else len(content) - 1, len(content) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
            content = content[begin : end + 1]
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *given):
        pass


@contextmanager
def web(folder, fails_every=0):
    """A server of a folder; its `address`, how often it was asked and failed, and which passwords it `heard`.

    moved: (before, after) beginnings of paths: those of the first are redirected to those of the second
    """

    class Handler(_Files):
        def __init__(self, *given):
            super().__init__(*given, directory=str(folder))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.fails_every, server.n_asked, server.n_failed = fails_every, 0, 0
    server.heard, server.moved = [], ("", "")
    with serving(server):
        yield server


class _Flaky(http.server.BaseHTTPRequestHandler):
    """Passes requests on to another server; every n-th is answered by an error, before or after it was passed on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # the name that the library calls
        self.server.n_asked += 1
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fails = self.server.n_asked % self.server.fails_every == 0
        if fails:
            self.server.n_failed += 1
        if fails and self.server.n_failed % 2:
            self._answer(503, {}, b"")
            return
        other = http.client.HTTPConnection(self.server.behind)
        other.request(self.command, self.path, content, dict(self.headers))
        answer = other.getresponse()
        result = answer.read()
        other.close()
        if fails:
            self._answer(500, {}, b"")
        else:
            self._answer(answer.status, dict(answer.getheaders()), result)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        length = headers.get("Content-Length", len(content)) if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *given):
        pass


@contextmanager
def flaky(behind, fails_every):
    """A server in front of another one ("host:port"), that fails; its `address`, and how often it failed."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Flaky)
    server.behind, server.fails_every, server.n_asked, server.n_failed = behind, fails_every, 0, 0
    with serving(server):
        yield server
