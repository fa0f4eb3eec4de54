"""Attacks: without the token, by a foreign name or page, with paths, with messages that are too large."""

import asyncio
import http.client
import logging
import os
import socket

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from hedgerow.errors import InputError
from hedgerow.paint.guarding import Guard, project_token
from hedgerow.paint.messages import MAX_BYTES
from hedgerow.paint.server import MAX_WINDOWS
from helpers.paint import Client, client_of, open_project, running, stroke
from helpers.servers import in_thread

PATHS = (
    "/",
    "/api/project",
    "/static/index.html",
    "/api/images/0/thumbnail",
    "/api/images/0/tile/0/0/0",
    "/api/images/0/labels/0/0/0",
    "/api/images/0/overlay/1/0?tiles=0.0",
    "/api/exports/0/model.hedge",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(open_project(tmp_path_factory.mktemp("guarded"))) as opened:
        yield opened


@pytest.fixture
def client(server):
    return client_of(server)


@pytest.fixture
def log(server, caplog):
    """The log, including that of uvicorn, which otherwise goes to the terminal only."""
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.addHandler(caplog.handler)
    yield caplog
    uvicorn.removeHandler(caplog.handler)


def refused_window(client, **headers):
    with pytest.raises(InvalidHandshake), client.window(**headers):
        pass


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", [None, "hedgerow_{}=", "hedgerow_{}=wrong", "hedgerow={}", 'hedgerow_{}="'])
def test_nothing_is_answered_without_the_cookie(client, path, cookie):
    given = cookie and cookie.format(client.port)
    status, _, body = client.get(path, Cookie=given)
    assert status == 403
    assert b"token" in body


def test_the_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(client):
    status, headers, body = client.get(f"/?token={client.token}", Cookie=None)
    assert (status, headers["location"], body) == (303, "/", b"")
    assert headers["set-cookie"] == f"{client.cookie}; HttpOnly; SameSite=Strict; Path=/"


@pytest.mark.parametrize("token", ["", "x", "wrong" * 9, "%00", "%ff"])
def test_a_wrong_token_gets_nothing(client, token):
    status, headers, _ = client.get(f"/?token={token}", Cookie=None)
    assert status == 403
    assert headers["set-cookie"] is None


def test_every_start_has_a_token_of_its_own():
    tokens = {Guard(None, "127.0.0.1", 1).token for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{}", "10.0.0.1:{}", ""],
)
def test_a_foreign_host_is_refused(client, host):
    assert client.get("/api/project", Host=host.format(client.port))[0] == 403
    refused_window(client, Host=host.format(client.port))


def test_two_hosts_are_refused(client):
    asking = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    asking.putrequest("GET", "/api/project", skip_host=True)
    for host in (f"127.0.0.1:{client.port}", f"evil.example:{client.port}"):
        asking.putheader("Host", host)
    asking.putheader("Cookie", client.cookie)
    asking.endheaders()
    assert asking.getresponse().status in (400, 403)
    asking.close()


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{}", "http://127.0.0.1:1", "file://"]
)
def test_a_foreign_origin_is_refused(client, origin):
    given = origin.format(client.port)
    assert client.get("/api/project", Origin=given)[0] == 403
    refused_window(client, Origin=given)


def test_a_window_needs_an_origin_and_the_cookie(client):
    refused_window(client, Origin=None)
    refused_window(client, Cookie=None)
    refused_window(client, Cookie=f"hedgerow_{client.port}=wrong")
    with client.window() as window:
        assert window.hear("windows")["n"] == 1
    local = {"Host": f"localhost:{client.port}", "Origin": f"http://localhost:{client.port}"}
    assert client.get("/api/project", **local)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/index.html%00.js",
        "/static/",
        "/api/exports/0/..%2f..%2fproject.json",
        "/api/exports/1/../../project.json",
        "/api/exports/-1/x",
        "/api/images/9/tile/0/0/0",
        "/api/images/0/tile/9/0/0",
        "/api/images/0/tile/0/99999999/0",
        "/api/images/0/labels/0/99999999/0",
        "/api/images/99/labels/0/0/0",
        "/api/images/0/overlay/1/0?tiles=0.0",
        "/api/images/9/overlay/1/0?tiles=0.0",
        "/api/images/-1/thumbnail",
        "/etc/passwd",
        "/docs",
    ],
)
def test_no_path_is_ever_taken_from_the_client(client, path):
    status, _, body = client.get(path)
    assert status in (204, 404)
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize(
    "query", ["channels=9", "channels=-1", "channels=a", "channels=" + ",".join("0" * 9), "channels="]
)
def test_channels_are_checked(client, query):
    assert client.get(f"/api/images/0/tile/0/0/0?{query}")[0] == 400


def test_tiles_of_an_overlay_are_checked(client):
    with client.window() as window:
        window.say({"do": "view", "image": 0, "level": 0, "rows": [0, 96], "cols": [0, 120]})
        window.paint(id="o1", value=0)
        window.paint(id="o2", value=1, points=[[50, 80]])
        result = window.hear("overlay")["result"]
    address = f"/api/images/0/overlay/{result}/0"
    assert client.get(f"{address}?tiles=0.0")[0] == 200
    for tiles in ("", "0", "0.0.0", "a.b", "-1.0", "0.1e9", "0.9999999", ",".join(["0.0"] * 33)):
        assert client.get(f"{address}?tiles={tiles}")[0] == 400, tiles
    assert client.get(address)[0] == 400
    assert client.get(f"/api/images/0/overlay/{result}/9?tiles=0.0")[0] == 404
    assert client.get(f"{address}?tiles={','.join(['99.99'] * 90)}")[0] == 414


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_is_answered(client, method):
    assert client.get("/api/project", method)[0] == 405


def test_an_address_that_is_too_long_is_refused(client):
    assert client.get("/api/project?x=" + "x" * 500)[0] == 414
    assert client.get("/api/project?x=" + "x" * 100_000)[0] in (400, 414, 431)


def test_a_header_that_is_too_long_is_refused(client):
    # In one piece: h11 limits only what it has to wait for.
    assert client.get("/api/project", **{"X-Padding": "x" * 20_000})[0] == 200
    assert client.get("/api/project", **{"X-Padding": "x" * 33_000})[0] in (400, 431)
    many = {f"X-Padding-{k}": "x" * 1000 for k in range(40)}
    assert client.get("/api/project", **many)[0] in (400, 431)
    refused_window(client, **{"X-Padding": "x" * 33_000})


def test_stated_hosts_and_a_base_path(tmp_path):
    heard = []

    async def app(scope, receive, send):
        heard.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    guard = Guard(app, "127.0.0.1", 8000, hosts=["hub.example.org"], base_path="/user/me/proxy/8000/")
    assert guard.address == f"http://127.0.0.1:8000/user/me/proxy/8000/?token={guard.token}"

    def status(path, host, origin=None, query=""):
        lines = [(b"host", host.encode()), (b"cookie", f"{guard.cookie}={guard.token}".encode())]
        lines += [(b"origin", origin.encode())] if origin else []
        scope = {"type": "http", "method": "GET", "path": path, "headers": lines, "query_string": query.encode()}
        sent = []

        async def send(message):
            sent.append(message)

        in_thread(lambda: asyncio.run(guard(scope, None, send)))
        return sent[0]["status"], dict(sent[0]["headers"])

    for path in ("/user/me/proxy/8000/api/project", "/api/project"):  # the proxy may strip the path
        assert status(path, "hub.example.org", "https://hub.example.org")[0] == 200
    assert heard == ["/api/project"] * 2
    assert status("/api/project", "127.0.0.1:8000", "https://hub.example.org")[0] == 200  # it may change the host
    assert status("/api/project", "hub.example.org", "https://evil.example")[0] == 403
    assert status("/api/project", "evil.example")[0] == 403
    code, headers = status("/user/me/proxy/8000/", "hub.example.org", query=f"token={guard.token}")
    assert code == 303
    assert headers[b"location"] == b"/user/me/proxy/8000/"
    assert headers[b"set-cookie"].endswith(b"Path=/user/me/proxy/8000/")


def test_the_token_of_a_project_lasts_and_only_its_user_can_read_it(tmp_path):
    token = project_token(tmp_path)
    assert len(token) == 43
    assert project_token(tmp_path) == token
    path = tmp_path / "token"
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        assert project_token(tmp_path) != token
        assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("something else")
    with pytest.raises(InputError, match="left unchanged"):
        project_token(tmp_path)


def test_every_answer_has_the_strict_headers(client):
    for path, cookie in (("/static/main.js", client.cookie), ("/api/project", client.cookie), ("/", None)):
        _, headers, _ = client.get(path, Cookie=cookie)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert headers["server"] is None


def test_a_message_that_is_too_large_ends_the_window(client):
    with client.window() as window:
        window.say(" " * (MAX_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            window.hear("nothing")


BRUSH = '{"do":"paint","id":"%s","image":%s,"tool":"brush","class":1,"radius":%s,"points":[[1,1]]}'
LONG = "9" * 5000
MESSAGES = {
    "not JSON": "{",
    "no object": "[]",
    "unknown field": '{"do": "undo", "path": "x"}',
    "unknown request": '{"do": "eval"}',
    "binary": b"\xff\xfe",
    "binary JSON": b'{"do": "undo"}',
    "binary and empty": b"",
    "empty": "",
    "long whole number": BRUSH % ("u", LONG, 1),
    "long radius": BRUSH % ("u", 0, LONG),
    "number of 400 digits": BRUSH % ("u", 0, "9" * 400),
    "long fraction": BRUSH % ("u", 0, "0." + "3" * 5000),
    "large exponent": BRUSH % ("u", 0, "1e999999"),
    "NaN": BRUSH % ("u", 0, "NaN"),
    "Infinity": BRUSH % ("u", 0, "-Infinity"),
    "half a character": BRUSH % ("\\ud800", 0, 1),
    "half a character as a name": '{"do": "class", "id": 0, "name": "\\udfff"}',
    "half a character as a field": '{"do": "undo", "\\ud800": 1}',
    "half a character as a request": '{"do": "\\ud800"}',
    "deep list": "[" * 100_000,
    "deep field": '{"do": "undo", "n": ' + "[" * 900 + "]" * 900 + "}",
    "deep points": '{"do":"paint","id":"u","image":0,"tool":"line","class":1,"radius":1,"points":'
    + "[" * 900
    + "]" * 900
    + "}",
    "deep object": '{"a":' * 50_000,
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_is_wrong_is_refused_and_the_window_goes_on(client, log, name):
    with client.window() as window:
        window.say(MESSAGES[name])
        assert window.hear("refused")["why"].endswith(".")
        assert window.paint(id=f"after {name}")["say"] == "painted"
    assert log.records == []


@pytest.mark.parametrize("frames", [[b"\xff\xfe"], [b"\xc3", b"\x28"], [b"x" * (MAX_BYTES + 1)], [b"x" * 2**17] * 3])
def test_a_text_that_is_none_or_too_large_ends_the_window_quietly(client, log, frames):
    def send(window):
        window.opened.send(frames if len(frames) > 1 else frames[0], text=True)
        window.hear("nothing")

    with client.window() as window, pytest.raises(ConnectionClosed):
        send(window)
    with client.window() as window:
        assert window.paint(id=f"after {frames[0][:4]}")["say"] == "painted"
    assert log.records == []


@pytest.mark.parametrize(
    "cookie", ["a[b]=1", 'a={"x":1}', "a,b=c", "=", ";;", "a", 'a="', "a=b=c", "\xe4=\xff", "a@b:c=1"]
)
def test_cookies_of_other_programs_do_not_hide_ours(client, cookie):
    for cookies in (f"{cookie}; {client.cookie}", f"{client.cookie}; {cookie}", f"{cookie};{client.cookie};{cookie}"):
        assert client.get("/api/project", Cookie=cookies)[0] == 200
        with client.window(Cookie=cookies) as window:
            window.hear("windows")
    for cookies in (
        cookie,
        f"{cookie}; x{client.cookie}",
        f"{cookie}; {client.cookie}x",
        f'{cookie}="{client.cookie}"',
    ):
        assert client.get("/api/project", Cookie=cookies)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        f"/api/images/{LONG}/thumbnail",
        f"/api/images/0/tile/0/0/{LONG}",
        f"/api/images/0/labels/{LONG}/0/0",
        f"/api/exports/{LONG}/x",
        "/api/images/0/tile/0/0/" + "9" * 300,
        "/api/images/" + "9" * 300 + "/overlay/1/0?tiles=0.0",
        "/static/" + "x/" * 4000,
    ],
    ids=lambda path: path[:30],
)
def test_long_numbers_in_addresses_are_refused_quietly(client, log, path):
    assert client.get(path)[0] in (404, 414)
    assert log.records == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"x" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \xff\r\n\r\n",
    ],
    ids=lambda sent: str(sent[:40]),
)
def test_nonsense_without_a_token_is_answered_and_not_logged(client, log, sent):
    with socket.create_connection(("127.0.0.1", client.port), 30) as asking:
        asking.sendall(sent)
        answer = b""
        try:
            while part := asking.recv(2**16):
                answer += part
        except ConnectionResetError:  # it is closed while there is more to read
            pass
    assert answer[:10] in (b"", b"HTTP/1.1 4")
    assert client.get("/api/project")[0] == 200
    assert log.records == []


def test_so_many_windows_and_no_more(server, client):
    opened = [client.window() for _ in range(MAX_WINDOWS)]
    windows = [item.__enter__() for item in opened]
    windows[-1].hear("windows", n=MAX_WINDOWS)
    refused_window(client)
    for item in opened:
        item.__exit__(None, None, None)


def test_a_flood_of_messages_waits_and_loses_nothing(tmp_path):
    opened = running(open_project(tmp_path), messages_per_second=200, message_burst=5)
    with opened as server, client_of(server).window() as window:
        for n in range(40):
            window.say(stroke(id=f"flood {n}", points=[[n, n]]))
        answered = [window.hear("painted", id=f"flood {n}") for n in range(40)]
        assert len({one["n"] for one in answered}) == 40


def test_listening_on_all_addresses_takes_numbers_and_no_names():
    guard = Guard(None, "0.0.0.0", 80)
    assert guard._is_our_name("192.168.1.7:80")
    assert guard._is_our_name("[fe80::1]:80")
    assert not guard._is_our_name("rebound.example:80")
    assert guard.address.startswith("http://127.0.0.1:80/")


def test_it_listens_on_this_machine_alone(server):
    assert server.listening.getsockname()[0] == "127.0.0.1"
    from hedgerow.cli.paint_command import _listening

    with _listening("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match="in use"), socket.create_server(listening.getsockname()):
            pass


def test_a_client_of_another_server_is_refused(client, tmp_path):
    with running(open_project(tmp_path)) as other:
        assert Client(other.port, client.token).get("/api/project")[0] == 403
