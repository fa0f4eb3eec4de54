"""What strangers and browsers send to the page's server: bytes over a real connection to 127.0.0.1."""

import json
import re
import socket
import threading
from urllib.parse import unquote_to_bytes

from fuzz import special
from fuzz.damage import damaged
from fuzz.messages import MESSAGES, Logged
from fuzz.outcomes import Failure, require
from fuzz.projects import Projects
from fuzz.values import TEXTS, pick
from hedgerow.errors import InputError
from hedgerow.paint.guarding import Guard
from hedgerow.paint.project import Project
from hedgerow.paint.server import Server, serving

TOKEN = "Tk7uQ2vXo4ZyB1cN8mL5wR0aPdEfGhIj"
PORT_MARK, TOKEN_MARK = b"@PORT@", b"@TOKEN@"  # in files, for what is another one each time
SECONDS = 5  # for the answer to a plain request
A_MOMENT = 0.05  # for an answer to what may be less than one, and for the rest of an answer
PATHS = (
    *(
        "/",
        "/api/project",
        "/static/main.js",
        "/static/index.html",
        "/api/images/0/thumbnail",
        "/ws",
        "/api/exports/1/x",
    ),
    *("/api/images/0/tile/0/0/0", "/api/images/1/labels/0/0/0", "/api/images/0/overlay/1/0?tiles=0.0", "/favicon.ico"),
    *("/api/images/0/tile/0/0/0?channels=0&range", "/?token=@TOKEN@", "/?token=wrong", "/?token=%00", "/?token=\u00e9"),
)
PIECES = (
    *(
        "0",
        "-1",
        "1",
        "99",
        "9" * 5000,
        "9" * 30,
        "0x1",
        "1e9",
        "٣",
        "²",
        "..",
        "../../project.json",
        "%2e%2e",
        "%2f",
        "%00",
    ),
    *(
        "%",
        "%zz",
        "%ff",
        "",
        " ",
        "a b",
        "\u202e",
        "x" * 300,
        "x" * 50_000,
        ";",
        "?",
        "#",
        "//",
        "\\",
        "*",
        "0.0," * 60,
    ),
)
METHODS = (
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PATCH",
    "get",
    "G\x00T",
    "",
    "X" * 9999,
)
VERSIONS = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", "http/1.1", "", "HTTP/1.1 x")
HEADERS = (
    *(
        "Host: 127.0.0.1:@PORT@",
        "Host: evil.example",
        "Host: 127.0.0.1",
        "Host: localhost:@PORT@",
        "Host: [::1]:@PORT@",
    ),
    *(
        "Host: ",
        "Host: 127.0.0.1:@PORT@:@PORT@",
        "Host: 127.0.0.1:99999",
        "Origin: null",
        "Origin: http://127.0.0.1:@PORT@",
    ),
    *(
        "Origin: http://evil.example",
        "Origin: ",
        "Cookie: hedgerow_@PORT@=wrong",
        "Cookie: hedgerow_@PORT@=",
        "Cookie: =",
    ),
    *("Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked"),
    *("Transfer-Encoding: x", "Expect: 100-continue", "Upgrade: websocket", "Upgrade: h2c", "Connection: Upgrade"),
    *(
        "Connection: keep-alive",
        "Range: bytes=0-5,7-9",
        "Range: bytes=9-1",
        "If-None-Match: *",
        "Accept-Encoding: gzip",
    ),
    *(
        "If-Modified-Since: x",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: evil.example",
        "X-HTTP-Method: PUT",
        "No colon",
    ),
    *(
        ": empty",
        " folded: 1",
        "Bad Name: 1",
        "X: " + "x" * 70_000,
        "Sec-WebSocket-Key: x",
        "Sec-WebSocket-Version: 99",
    ),
    *(
        "Sec-WebSocket-Extensions: permessage-deflate; x=1",
        "Sec-WebSocket-Protocol: x, y",
        "Authorization: Basic !",
        "\x00",
    ),
)
# Of other programs at the same name: ours must be found among them.
FOREIGN_COOKIES = (
    *(
        "a=1",
        "a[b]=1",
        'a={"x":1}',
        "a=b=c",
        "novalue",
        'a="',
        'a="x;y"',
        "a=\u00e9",
        "a=(1,2)",
        "a=/path",
        "a@b=1",
        "=1",
    ),
    *(
        "$Version=1",
        "expires=1",
        "path=/",
        "HttpOnly",
        "a=" + "x" * 3000,
        "_ga=GA1.1.1; _gid=1",
        "a b=1",
        "hedgerow_1=x",
    ),
)
UPGRADE = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: http://127.0.0.1:@PORT@"),
)
OWNER = ("Host: 127.0.0.1:@PORT@", "Cookie: hedgerow_@PORT@=@TOKEN@")


class Requests:
    """Makes and uses requests: JSON with the bytes to send, as Latin-1, and the status of the answer if one is right.

    One server answers all cases of a worker; after each it must answer a plain request.
    """

    name = "requests"

    def __init__(self, folder):
        projects = Projects(folder)
        place = folder / "project"
        special.copy(projects.base, place)
        self.secrets = (b"a0.png", b"a1.png", str(place).encode(), b"third", TOKEN.encode())
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.server = Server(Project(place, projects.images))
        served = serving(Guard(self.server.app, "127.0.0.1", self.port, TOKEN))
        self.heard = Logged()
        threading.Thread(target=served.run, kwargs={"sockets": [listening]}, daemon=True).start()
        for path in PATHS[:12]:  # which also loads what the worker needs, before its memory is limited
            self._answered(_request("GET", path, "HTTP/1.1", OWNER), SECONDS)
        self._check_goes_on()

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        kind = rng.random()
        if kind < 0.1:
            cookies = [pick(rng, FOREIGN_COOKIES) for _ in range(int(rng.integers(1, 5)))]
            cookies.insert(int(rng.integers(len(cookies) + 1)), "hedgerow_@PORT@=@TOKEN@")
            content = _request("GET", "/api/project", "HTTP/1.1", (OWNER[0], f"Cookie: {'; '.join(cookies)}"))
            case = {"bytes": content.decode("latin-1"), "status": 200}
            done = f"cookies {cookies}"
        else:
            content, done = _window(rng) if kind < 0.25 else _hostile(rng)
            case = {"bytes": content.decode("latin-1"), "status": None}
        path = folder / "request.json"
        path.write_text(json.dumps(case))
        return path, done[:300]

    def use(self, path):
        """Send them; without the token nothing is given away, and nothing goes wrong inside."""
        case = json.loads(path.read_text())
        content = case["bytes"].encode("latin-1")
        self.heard.records.clear()
        answer = self._answered(content, SECONDS if case["status"] else A_MOMENT)
        statuses = [int(status) for status in re.findall(rb"(?:^|\n)HTTP/1\.[01] (\d{3})", answer)]
        if case["status"] is not None:
            require(statuses == [case["status"]], f"answered {statuses}: {answer[:300]!r}", "foreign cookies")
        require(not any(status == 500 for status in statuses), f"answered {answer[:300]!r}", "status 500")
        require(b"Traceback" not in answer, f"answered {answer[:300]!r}", "a traceback")
        if TOKEN_MARK not in content and TOKEN_MARK not in unquote_to_bytes(content):
            told = [secret for secret in self.secrets if secret in answer]
            require(not told, f"it told {told}", "secrets")
            require(not any(status < 400 for status in statuses), f"answered {statuses} without a token", "no token")
        self._check_goes_on()
        require(not self.heard.records, f"logged: {self.heard.records[:1]!r:.500}", _last(self.heard.records))
        if not any(status < 400 for status in statuses):
            raise InputError(f"answered {statuses or 'nothing'}.")

    def _answered(self, content, seconds):
        """What comes back until the server closes the connection, or falls silent; it has some seconds to begin."""
        content = content.replace(PORT_MARK, str(self.port).encode()).replace(TOKEN_MARK, TOKEN.encode())
        result = bytearray()
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            try:
                connection.sendall(content)
                while part := connection.recv(2**16):
                    result += part
                    connection.settimeout(A_MOMENT)
            except TimeoutError:
                pass
            except OSError:  # it closed while we sent
                pass
        return bytes(result)

    def _check_goes_on(self):
        answer = self._answered(_request("GET", "/api/project", "HTTP/1.1", (*OWNER, "Connection: close")), SECONDS)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise Failure("result", f"a plain request is answered {answer[:200]!r}", "a plain request")


def _last(records):
    """What tells the failures in a log apart."""
    return re.sub(r"\d+|0x\w+", "", records[-1])[-80:] if records else ""


def _request(method, path, version, headers, body=b""):
    lines = [f"{method} {path} {version}", *headers, "", ""]
    return "\r\n".join(lines).encode("utf-8") + body


def _hostile(rng):
    """One or several requests with something odd, and what it is."""
    path, done = pick(rng, PATHS), []
    headers = list(OWNER) if rng.random() < 0.6 else [OWNER[0]]
    method = version = None
    for _ in range(int(pick(rng, (1, 1, 2, 3)))):
        kind = rng.integers(8)
        if kind == 0:
            method = pick(rng, METHODS)
        elif kind == 1:
            version = pick(rng, VERSIONS)
        elif kind == 2:
            parts = re.split("([/?=,.&])", path)
            parts[int(rng.integers(len(parts)))] = pick(rng, PIECES)
            path = "".join(parts)
        elif kind == 3:
            headers[int(rng.integers(len(headers)))] = pick(rng, HEADERS)
        else:
            headers.insert(int(rng.integers(len(headers) + 1)), pick(rng, (*HEADERS, *HEADERS, *TEXTS)))
        done.append(f"{path!r:.30} {headers[-1]!r:.30}")
    body = (
        b""
        if rng.random() < 0.8
        else pick(rng, (b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"FFFFFFFFFF\r\n", b"\0" * 10**5))
    )
    content = "\r\n".join([f"{method or 'GET'} {path} {version or 'HTTP/1.1'}", *headers, "", ""])
    content = content.encode("utf-8", "surrogatepass") + body
    if rng.random() < 0.1:
        content, how = damaged(content, rng)
        done.append(how)
    if rng.random() < 0.1:
        content *= int(pick(rng, (2, 30)))
        done.append("several")
    return content, ", ".join(done)


def _window(rng):
    """A window that opens, and frames that may be none."""
    headers = [*OWNER, *UPGRADE]
    if rng.random() < 0.2:
        headers[int(rng.integers(len(headers)))] = pick(rng, HEADERS)
    content, done = _request("GET", "/ws", "HTTP/1.1", headers), []
    for _ in range(int(rng.integers(0, 4))):
        opcode = int(pick(rng, (0x81, 0x81, 0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC1, 0xF1, 0x09)))
        body = json.dumps(pick(rng, MESSAGES[:8])).encode()
        if rng.random() < 0.3:
            body, _ = damaged(body, rng)
        length = int(pick(rng, (len(body), len(body), len(body), 0, 5, 2**16, 2**18 + 1, 2**40, 2**63)))
        content += _frame(opcode, length, body, masked=rng.random() < 0.9)
        done.append(f"frame {opcode:#x} of {length}")
    return content, f"a window: {', '.join(done)}"


def _frame(opcode, length, body, *, masked):
    mask = 0x80 if masked else 0
    if length < 126:
        head = bytes([opcode, mask | length])
    elif length < 2**16:
        head = bytes([opcode, mask | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([opcode, mask | 127]) + length.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + body
