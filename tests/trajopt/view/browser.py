"""Headless Chromium, controlled by the DevTools protocol: opens pages, evaluates expressions, takes screenshots."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
NO_NOTES = "<style>.mantine-Notifications-root {display: none}</style>"
"""CSS that hides a notice about software rendering, which pages show for some seconds."""
PATIENCE = 90.0
"""Timeout of a page [s]."""


class Browser:
    """A browser with one page. size: of its window [pixels]. ``errors``: console errors. ``asked``: addresses, other than files,
    that pages requested."""

    def __init__(self, profile: Path, size: tuple[int, int] = (800, 600)) -> None:
        from websockets.sync.client import connect

        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.errors: list[str] = []
        self.asked: list[str] = []
        self._count = itertools.count(1)
        try:
            port_file = profile / "DevToolsActivePort"
            self.until(lambda: port_file.exists() and len(port_file.read_text().splitlines()) == 2)
            port = port_file.read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [target for target in json.load(answer) if target["type"] == "page"]
            self._socket = connect(pages[0]["webSocketDebuggerUrl"], max_size=None, proxy=None)
        except BaseException:
            self._process.kill()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the answer to a command."""
        number = next(self._count)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._listen(message)

    def _listen(self, message: dict[str, Any]) -> None:
        method, details = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(details["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and details["type"] == "error":
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = details["request"]["url"]
            self.asked += [] if address.startswith(("file:", "data:", "blob:")) else [address[:200]]

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, element: str, key: str) -> None:
        """Press a key on the element of an expression."""
        self.evaluate(f"{element}.focus()")
        code = {"End": 35, "Home": 36}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def click(self, element: str, fraction: float = 0.5) -> None:
        """Press the mouse on the element of an expression, at a fraction of its width."""
        place = f"(r => [r.x + {fraction} * r.width, r.y + 0.5 * r.height])({element}.getBoundingClientRect())"
        x, y = self.evaluate(place)
        for kind, button in (("mouseMoved", "none"), ("mousePressed", "left"), ("mouseReleased", "left")):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def without_network(self) -> None:
        """Disable network access: pages can only open files."""
        none = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.call("Network.emulateNetworkConditions", offline=True, **none)

    def open(self, url: str, ready: str) -> None:
        """Open a page and wait until an expression in it is true."""
        self.call("Page.navigate", url=url)
        self.until(lambda: self.evaluate(ready))
        self.evaluate(f"document.head.insertAdjacentHTML('beforeend', '{NO_NOTES}')")

    def picture(self) -> np.ndarray:
        """Return a screenshot (height, width, 3) in 0 .. 1."""
        from PIL import Image

        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(Image.open(BytesIO(data)).convert("RGB"), dtype=float) / 255.0

    def seen(self, test: Callable[[np.ndarray], bool]) -> np.ndarray:
        """Return the first screenshot that passes a test. Raises TimeoutError."""
        started = time.monotonic()
        while not test(picture := self.picture()):
            if time.monotonic() - started > PATIENCE:
                raise TimeoutError("the page does not show what it should")
        return picture

    @staticmethod
    def until(test: Any) -> None:
        """Wait until a test holds. Raises TimeoutError."""
        started = time.monotonic()
        while not test():
            if time.monotonic() - started > PATIENCE:
                raise TimeoutError("the browser does not answer")
            time.sleep(0.05)
