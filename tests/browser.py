"""A real browser for tests: Debian's chromium, headless, over its debugging pipe.

The browser reads commands from file descriptor 3 and writes answers and events to 4, each a JSON
text that ends in a zero byte (the DevTools protocol), so that nothing but Python is needed.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST_WAIT = 60.0
# Codes of keys that are no characters, and the text that they give.
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Backspace": (8, ""),
    "-": (189, "-"),
    ".": (190, "."),
}
# Becomes the browser, with its two pipes where it expects them.
LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The browser's program, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser of its own, with an empty profile, that ends with the `with` block."""

    def __enter__(self) -> Self:
        program = find_browser()
        assert program is not None, "no chromium found"
        self.profile = tempfile.mkdtemp(prefix="rnade-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Above 3 and 4, so that the launcher can put them there one after the other.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_browser, from_browser)]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCHER, *map(str, high)),
                program,
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--force-color-profile=srgb",
                "--hide-scrollbars",
                f"--user-data-dir={self.profile}",
                "about:blank",
            ],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in high:
            os.close(fd)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come first are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        """Wait for an event of a page."""
        while True:
            for at, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    del self.events[at]
                    return
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + LONGEST_WAIT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"The browser said nothing for {LONGEST_WAIT:g} s.")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("The browser ended.")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(
        self,
        page: str | Path,
        *,
        width: int = 1100,
        height: int = 900,
        dark: bool = False,
        fragment: str = "",
    ) -> "Tab":
        """Open a file in a new tab, at a fragment of it, and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self.call("Page.navigate", session, url=Path(page).absolute().as_uri() + fragment)
        self.wait_for("Page.loadEventFired", session)
        return Tab(self, session)


class Tab:
    """One loaded page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def evaluate(self, expression: str) -> Any:
        """Give the value of a JavaScript expression on the page; a promise is waited for."""
        answer = self.browser.call(
            "Runtime.evaluate",
            self.session,
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key: a character, or one of `KEYS` by name."""
        code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
        event: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        event["modifiers"] = 8 if shift else 0
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.browser.call("Input.dispatchKeyEvent", self.session, **event, **down)
        self.browser.call("Input.dispatchKeyEvent", self.session, **event, type="keyUp")

    @property
    def problems(self) -> list[str]:
        """Script errors, console messages, dialogs and blocked things, as text."""
        kinds = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event) for event in self._events() if event.get("method") in kinds]

    @property
    def requests(self) -> list[str]:
        """Addresses of everything that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _events(self) -> list[dict[str, Any]]:
        self.evaluate("0")  # whatever happened before is among the events now
        return [e for e in self.browser.events if e.get("sessionId") == self.session]

    def screenshot(
        self, path: str | Path, *, whole: bool = True, height: int | None = None
    ) -> None:
        """Save a picture of the page: all of it, or as much as `height` from its top."""
        parameters: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if height is not None:
            width = self.evaluate("innerWidth")
            parameters["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        data = self.browser.call("Page.captureScreenshot", self.session, **parameters)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def pdf(self, path: str | Path) -> None:
        """Print the page to a PDF file."""
        answer = self.browser.call(
            "Page.printToPDF", self.session, printBackground=True, preferCSSPageSize=True
        )
        Path(path).write_bytes(base64.b64decode(answer["data"]))
