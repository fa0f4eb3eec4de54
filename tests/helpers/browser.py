"""Chromium without a window, driven through chromedriver by the WebDriver protocol: JSON over HTTP."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
    "host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


class Browser:
    """One page at a time, of a chosen size and colour scheme."""

    def __init__(self, address):
        self.address = address

    def ask(self, path, values=None, method="POST"):
        data = None if method != "POST" else json.dumps(values or {}).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, {"Content-Type": "application/json"})
        request.method = method
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def command(self, name, **values):
        """A command of the developer tools."""
        return self.ask("/goog/cdp/execute", {"cmd": name, "params": values})

    def open(self, address, width, height=900, dark=False):
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("/url", {"url": address})

    def run(self, script):
        """What a script returns."""
        return self.ask("/execute/sync", {"script": script, "args": []})

    def requests(self):
        """Addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.ask("/se/log", {"type": "performance"})]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """What the console said since the last call."""
        return [entry["message"] for entry in self.ask("/se/log", {"type": "browser"})]

    def screenshot(self):
        """The whole page, as the bytes of a PNG."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def pdf(self):
        """The page as it prints."""
        return base64.b64decode(self.command("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def browsing():
    """A browser with an empty profile; it and its driver end with the block."""
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            found = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
            port = next(match[1] for match in found if match)
            browser = Browser(f"http://127.0.0.1:{port}")
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            session = browser.ask("/session", {"capabilities": {"alwaysMatch": wanted}})
            browser.address += f"/session/{session['sessionId']}"
            try:
                browser.open("about:blank", 1000)
                browser.requests()  # of the browser's own first page
                yield browser
            finally:
                browser.ask("", method="DELETE")
        finally:
            driver.terminate()
            driver.wait(timeout=20)
            driver.stdout.close()
