"""Servers that never answer, send too much, or redirect readers; and addresses with passwords."""

import logging
import socket
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tifffile

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError, masked
from hedgerow.images import remote, zarr_reading
from hedgerow.images.reading import open_image
from hedgerow.scale.markers import Markers
from helpers.large import picture, write_ome_zarr, write_zarr
from helpers.refusals import assert_one_sentence
from helpers.servers import serving, web

pytest.importorskip("aiohttp")
pytestmark = pytest.mark.filterwarnings(
    "ignore:[Uu]nclosed:ResourceWarning",
    "ignore:coroutine:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)


@contextmanager
def silent():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def answering(answer):
    """A server whose answers `answer(handler)` writes; its `address`, and the paths that were `asked` for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):  # the name that http.server expects
            self.server.asked.append(self.path)
            answer(self)

        do_HEAD = do_GET

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    with serving(server):
        yield server


def redirect(to, header="Location"):
    def answer(handler):
        handler.send_response(302)
        handler.send_header(header, to(handler.path))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


# Silence


@pytest.mark.parametrize("name", ["image.ome.zarr", "image.tif", "image.npy"])
def test_a_silent_server_is_asked_three_times_and_each_time_is_told(name, monkeypatch, caplog):
    monkeypatch.setenv(remote.TIMEOUT_VARIABLE, "0.3")
    with silent() as address, caplog.at_level(logging.WARNING, "hedgerow"), pytest.raises(InputError) as problem:
        open_image(f"{address}/{name}")
    assert_one_sentence(problem, f"cannot read {address}/{name}", "did not answer in time", "3 times in a row")
    told = [record.getMessage() for record in caplog.records if record.name == "hedgerow"]
    assert [text.rpartition("; ")[2] for text in told] == ["retrying, attempt 2 of 3", "retrying, attempt 3 of 3"]


def test_a_bucket_that_is_silent(monkeypatch):
    pytest.importorskip("s3fs")
    monkeypatch.setenv(remote.TIMEOUT_VARIABLE, "0.3")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "key")
    with silent() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(InputError) as problem:
            open_image("s3://bucket/image.npy")
    assert_one_sentence(problem, "cannot read s3://bucket/image.npy", "did not answer in time", "3 times in a row")


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan"])
def test_a_bad_timeout_is_a_clear_error(value, monkeypatch):
    monkeypatch.setenv(remote.TIMEOUT_VARIABLE, value)
    with pytest.raises(ConfigError) as problem:
        open_image("http://127.0.0.1:9/image.npy")
    assert_one_sentence(problem, remote.TIMEOUT_VARIABLE, repr(value), "above 0")


def test_a_refusal_is_not_asked_for_again():
    def answer(handler):
        handler.send_response(403)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answering(answer) as server, pytest.raises(InputError) as problem:
        open_image(f"{server.address}/image.npy")
    assert_one_sentence(problem, "the server refused the request", "403", "check the address and your access")
    assert len(server.asked) < 4


def dripping_header(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    drip(handler, b"X-More: again\r\n")


def dripping_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    drip(handler, b" ")


def drip(handler, part):
    """Send a part now and then; for some seconds only, so that a test that fails ends."""
    handler.close_connection = True
    try:
        for _ in range(40):
            handler.wfile.write(part)
            time.sleep(0.1)
    except OSError:
        pass


@pytest.mark.parametrize("answer", [dripping_header, dripping_body])
@pytest.mark.parametrize("name", ["image.ome.zarr", "image.npy"])
def test_a_server_that_drips_counts_as_silent(name, answer, monkeypatch):
    monkeypatch.setenv(remote.TIMEOUT_VARIABLE, "0.3")
    with answering(answer) as server, pytest.raises(InputError) as problem:
        open_image(f"{server.address}/{name}")
    assert_one_sentence(problem, "did not answer in time", "3 times in a row")


# Too much


def endless(handler):
    """An answer without a length or an end, until the reader closes the connection."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    sent = 0
    try:
        while sent < 2**26:  # else a test that fails would fill the memory
            sent += handler.wfile.write(b" " * 2**16)
    except OSError:
        pass
    handler.server.sent = sent


def test_endless_metadata_are_not_read_to_the_end(monkeypatch):
    monkeypatch.setattr(zarr_reading, "METADATA_BYTES", 10_000)
    with answering(endless) as server, pytest.raises(InputError) as problem:
        open_image(f"{server.address}/image.ome.zarr")
    assert_one_sentence(problem, "sends more than the 10.0 kB", "check the address")


def test_an_endless_chunk_is_not_read_to_the_end(tmp_path):
    write_zarr(tmp_path / "image.zarr", picture())
    description = (tmp_path / "image.zarr" / "zarr.json").read_bytes()

    def answer(handler):
        if "/c/" in handler.path:
            endless(handler)
            return
        is_there = handler.path.endswith("zarr.json")
        handler.send_response(200 if is_there else 404)
        handler.send_header("Content-Length", str(len(description) if is_there else 0))
        handler.end_headers()
        if is_there:
            handler.wfile.write(description)

    with answering(answer) as server:
        image = open_image(f"{server.address}/image.zarr")
        with pytest.raises(InputError) as problem:
            image.read(image.whole)
    assert_one_sentence(problem, "sends more than the")
    assert server.sent < 2**26


# Elsewhere


@pytest.mark.parametrize("header", ["Location", "URI"])  # aiohttp follows both
@pytest.mark.parametrize("name", ["image.ome.zarr", "image.tif", "image.npy"])
def test_a_redirect_to_another_host_is_not_followed(tmp_path, name, header):
    with web(tmp_path) as other:
        there = other.address.replace("127.0.0.1", "localhost")
        with answering(redirect(lambda path: there + path, header)) as server, pytest.raises(InputError) as problem:
            open_image(f"{server.address}/{name}")
        assert_one_sentence(problem, "to another host", there, "use that address if you trust it")
        assert other.n_asked == 0


def test_another_port_is_another_host(tmp_path):
    with web(tmp_path) as other:
        with answering(redirect(lambda path: other.address + path)) as server, pytest.raises(InputError) as problem:
            open_image(f"{server.address}/image.npy")
        assert_one_sentence(problem, "to another host", other.address)
        assert other.n_asked == 0


@pytest.mark.parametrize("name", ["image.ome.zarr", "image.tif"])
@pytest.mark.parametrize(
    ("there", "words"),
    [("/again", "again and again"), ("http:\\\\a\\b", "no address")],
    ids=["circle", "no address"],
)
def test_a_redirect_to_nowhere_is_told_at_once(name, there, words, caplog):
    with answering(redirect(lambda path: there)) as server, pytest.raises(InputError) as problem:
        open_image(f"{server.address}/{name}")
    assert_one_sentence(problem, "its server redirects", words, "check the address")
    assert "retrying" not in caplog.text


def test_a_redirect_on_the_same_host_is_followed(tmp_path):
    image = picture()
    write_ome_zarr(tmp_path / "there.ome.zarr", [image])
    with web(tmp_path) as server:
        server.moved = ("/here.ome.zarr", "/there.ome.zarr")
        found = open_image(f"{server.address}/here.ome.zarr")
        np.testing.assert_array_equal(found.read(found.whole)[0], image)


# Passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("read https://user:pw@host/a.tif now", "read https://***@host/a.tif now"),
        ("https://user:p/w@host/a.tif", "https://***@host/a.tif"),
        ("https:/user:pw@host/a.tif", "https:/***@host/a.tif"),
        ("s3://key:sec/ret+x@bucket/a.zarr", "s3://***@bucket/a.zarr"),
        ("https://token@host/a", "https://***@host/a"),
        ("https://h/a?sig=abc: refused", "https://h/a?sig=***: refused"),
        ("https://h/a?sig=abc&X-Amz-Signature=d%3D#t=e", "https://h/a?sig=***&X-Amz-Signature=***#t=***"),
        ("URL('https://u:p@h/a?k=v')", "URL('https://***@h/a?k=***')"),
        ("http://127.0.0.1:8080/a@b/c.tif", "http://127.0.0.1:8080/a@b/c.tif"),
        ("s3://bucket/mail@host/a.zarr", "s3://bucket/mail@host/a.zarr"),
        ("C:/a:b@c and a@b.c, 1:2", "C:/a:b@c and a@b.c, 1:2"),
    ],
)
def test_what_is_shown_of_an_address(text, shown):
    assert masked(text) == shown
    assert str(InputError(f"cannot read {text}")) == f"cannot read {shown}"


def test_a_password_is_cut_out_before_a_long_text_is_cut():
    problem = ValueError("x" * 170 + " https://user:secret" + "s" * 40 + "@host/a")
    assert "secret" not in hr.errors.one_line(problem)


def test_a_password_reaches_its_server_and_nobody_else(tmp_path, stack, caplog):
    image = picture()
    write_ome_zarr(tmp_path / "image.ome.zarr", [image])
    messages, allowed = [], []
    with web(tmp_path) as server:
        server.heard = allowed
        address = server.address.replace("//", "//user:hidden@") + "/image.ome.zarr"
        done = Markers.set_done
        records = []

        def remember(self, shard):
            records.append(self.read_record())
            done(self, shard)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Markers, "set_done", remember)
            hr.predict_large(stack, address, tmp_path / "a.ome.zarr", shard=64, say=messages.append)
        assert set(allowed) == {"Basic dXNlcjpoaWRkZW4="}
        server.fails_every = 1
        with caplog.at_level(logging.WARNING, "hedgerow"), pytest.raises(InputError) as problem:
            open_image(address)
        server.fails_every = 0
        with pytest.raises(InputError) as missing:
            open_image(address.replace("image", "gone").replace(".ome.zarr", ".npy"))
    written = b"".join(path.read_bytes() for path in (tmp_path / "a.ome.zarr").rglob("zarr.json"))
    for text in (messages, records, problem.value, missing.value, caplog.text, written, repr(problem.value.__cause__)):
        assert "hidden" not in str(text)
    assert records
    assert "//***@127.0.0.1" in str(problem.value)


def test_a_key_in_the_query_is_not_shown(tmp_path):
    tifffile.imwrite(tmp_path / "image.tif", picture(), tile=(64, 64), metadata=None)
    with web(tmp_path) as server:
        found = open_image(f"{server.address}/image.tif?sig=hidden")
        np.testing.assert_array_equal(found.read(found.whole)[0], picture())
        assert "hidden" not in f"{found.name} {found.identity}"
        server.fails_every = 1
        with pytest.raises(InputError) as problem:
            open_image(f"{server.address}/image.tif?sig=hidden")
    assert_one_sentence(problem, "image.tif?sig=***")
    assert "hidden" not in str(problem.value)


def test_keys_in_the_address_of_a_bucket_are_refused():
    pytest.importorskip("s3fs")
    with pytest.raises(InputError) as problem:
        open_image("s3://key:hidden@bucket/image.ome.zarr")
    assert_one_sentence(problem, "cannot read s3://***@bucket/image.ome.zarr", "AWS_SECRET_ACCESS_KEY")
    assert "hidden" not in str(problem.value)
