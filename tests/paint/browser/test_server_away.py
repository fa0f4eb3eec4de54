"""Servers that hang, restart, or are reached through a tunnel or below another path."""

import signal
import socket
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from browsing import Paint
from helpers.browsing import PLAIN, write_images

SAVED = "document.querySelector('#connection').textContent === 'Saved as you paint'"


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path / "images")
    return tmp_path


def paint(hand, place, *places):
    hand.choose(place)
    hand.stroke(*places)


def test_a_hung_server_is_noticed_and_strokes_wait(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        hand.until(SAVED, patience=10)
        server.process.send_signal(signal.SIGSTOP)
        hand.until(f"!({SAVED})", patience=20)
        assert "does not answer" in hand.page.locator("#banner").inner_text()
        paint(hand, 1, (20, 10), (50, 40))
        assert hand.run("hedgerow.session.outbox.waiting.length") == 1
        server.process.send_signal(signal.SIGCONT)
        hand.until(SAVED, patience=20)
        hand.saved()
        assert (hand.labels() != 255).any()
        assert hand.page.locator("#banner").is_hidden()


def test_pages_connect_again_after_a_restart(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        hand.until(SAVED, patience=10)
        server.kill()
        hand.until(f"!({SAVED})", patience=20)
        server.start()
        hand.until(SAVED, patience=20)
        paint(hand, 1, (20, 10), (50, 40))
        hand.saved()
        assert (hand.labels() != 255).any()


def test_strokes_of_one_project_are_not_sent_to_another(open_page, folder):
    write_images(folder / "others")
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        paint(hand, 1, (20, 10), (50, 40))
        hand.saved()
        server.kill()
        hand.until("!hedgerow.session.outbox.open", patience=20)
        paint(hand, 1, (70, 10), (90, 40))
        with Paint(folder / "others", folder / "other", port=server.port, before=PLAIN) as other:
            hand.page.context.new_page().goto(other.address)
            hand.page.locator("#banner").get_by_text("Another project").wait_for()
            assert hand.run("hedgerow.session.outbox.waiting.length") == 1
            assert (hand.labels() == 255).all()
            hand.page.reload()
            hand.ready()
            assert hand.run("hedgerow.session.outbox.waiting.length") == 0
            assert (hand.labels() == 255).all()


def test_the_page_is_as_it_was_left_also_by_another_browser(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        hand.run(
            "{ const {app, stage} = hedgerow; app.show(1); app.setTool('polygon'); app.setClass(1); app.setRadius(17);"
            " app.tool = 'brush'; app.setTool('polygon'); app.setOverlay({mode: 'outlines'});"
            " stage.image.shown[0].high = 77; app.emit('channels'); }"
        )
        hand.page.click("#theme")
        theme = hand.run("document.documentElement.dataset.theme")
        hand.until("Object.keys(hedgerow.memory.unsent).length === 0", patience=10)
        for _ in range(500):  # what was sent may not have arrived
            if '"high": 77' in (folder / "project" / "project.json").read_text(encoding="utf-8"):
                break
            hand.page.wait_for_timeout(20)
        server.kill()
        server.start()
        hand = open_page(server, as_left=True)
        app = "(({image, tool, classId, radius, overlay}) => [image.name, tool, classId, radius, overlay.mode])"
        assert hand.run(f"{app}(hedgerow.app)") == ["b.png", "polygon", 1, 17, "outlines"]
        assert hand.run("hedgerow.stage.image.shown[0].high") == 77
        assert hand.run("document.documentElement.dataset.theme") == theme
        assert hand.page.locator("#tool-polygon").get_attribute("aria-pressed") == "true"


@contextmanager
def tunnel(port):
    """A local port that leads to another one, as of ssh -L."""
    listening, ends = socket.create_server(("127.0.0.1", 0)), []

    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def accept():
        while True:
            try:
                ends.append(listening.accept()[0])
                ends.append(socket.create_connection(("127.0.0.1", port)))
            except OSError:
                return
            near, far = ends[-2:]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)  # this ends the thread that accepts
        for end in (listening, *ends):
            end.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


class At:
    """The address of a server through something else."""

    def __init__(self, address):
        self.address = address


def test_a_stated_host_is_answered_through_a_tunnel_and_others_are_not(open_page, folder, chromium):
    port = free_port()
    with tunnel(port) as near:
        options = ("--allow-host", f"localhost:{near}")
        with Paint(folder / "images", folder / "project", port=port, before=PLAIN, options=options) as server:
            hand = open_page(At(server.address.replace(f"127.0.0.1:{port}", f"localhost:{near}")))
            paint(hand, 1, (20, 10), (50, 40))
            hand.saved()
            assert (hand.labels() != 255).any()
            context = chromium.new_context()
            refused = context.new_page().goto(server.address.replace(str(port), str(near)))
            assert refused.status == 403
            context.close()


def test_the_page_works_below_another_path(open_page, folder):
    path = "/user/me/proxy/8000/"
    with Paint(folder / "images", folder / "project", before=PLAIN, options=("--base-path", path)) as server:
        assert path in server.address
        hand = open_page(server)
        asked = []
        hand.page.on("request", lambda request: asked.append(request.url))
        paint(hand, 1, (20, 10), (50, 40))
        paint(hand, 2, (20, 160), (50, 190))
        hand.saved()
        hand.until("hedgerow.stage.overlay.results.has(0)", patience=60)
        hand.segmented()
        assert asked
        assert all(path in address for address in asked)
        cookies = hand.page.context.cookies()
        assert [cookie["path"] for cookie in cookies] == [path]
        np.testing.assert_array_equal(np.unique(hand.labels()), [0, 1, 255])


def test_files_of_the_page_are_cached_and_it_puts_nothing_into_the_window(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        page = hand.page.context.new_page()
        fetched = []
        page.on(
            "requestfinished", lambda request: fetched.append((request.url, request.response().from_service_worker))
        )
        page.goto(server.address)
        page.locator(".swatch").first.wait_for()
        assert page.evaluate("typeof globalThis.hedgerow") == "undefined"
        sizes = page.evaluate(
            "performance.getEntriesByType('resource').filter(e => e.name.includes('/static/')).map(e => e.transferSize)"
        )
        assert len(sizes) > 40
        assert max(sizes) == 0
