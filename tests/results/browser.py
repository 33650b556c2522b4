"""A real browser for tests: Chromium, driven over its debugging pipe, without any further package."""

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from engram.core.jsons import Json, JsonObject

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


# Chromium reads commands from descriptor 3 and answers on 4; the pipe's own descriptors may be these two,
# so they are moved out of the way first.
HAND_OVER = """
import fcntl, os, sys
away = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(away[0], 3)
os.dup2(away[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

PATIENCE = 60.0
"""Seconds after which a browser that does not answer is given up."""


def find_chromium() -> str | None:
    """The browser's path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One Chromium process with one page."""

    def __init__(self, program: str, profile: Path) -> None:
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", HAND_OVER, str(command_read), str(answer_write)),
                *(program, *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._number = 0
        self._buffer = b""
        self.events: list[JsonObject] = []
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        # Without it a page in a browser without windows never has the focus.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **parameters: Json) -> JsonObject:
        """Send one command and wait for its answer; what happens meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: JsonObject = answer.get("result", {})
                return result
            if "method" in answer:
                self.events.append(answer)

    def _next(self) -> JsonObject:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE)
            piece = os.read(self._answers, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("Chromium ended, or did not answer in time")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: JsonObject = json.loads(text)
        return answer

    def look(self, *, width: int, height: int = 844, dark: bool = False, mobile: bool = False) -> None:
        """Choose the window's size and the reader's preferred colours, and wait until the page has followed.

        A page is told of both with its next frame, which may come after the answer to the next question.
        """
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.ask(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)"
        )

    def open(self, page: Path) -> None:
        """Open a file and wait until its figures are drawn."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        drawn = """new Promise((done) => {
            const look = () => document.documentElement?.dataset.drawn ? done(true) : setTimeout(look, 20);
            look();
            setTimeout(() => done(false), 45000);
        })"""
        if not self.ask(drawn):
            raise RuntimeError(f"{page} was not drawn within 45 s: {self.problems()}")

    def ask(self, expression: str) -> Json:
        """The value of a JavaScript expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def problems(self) -> list[str]:
        """Errors and warnings that the page has caused since it was opened."""
        errors = []
        for event in self.events:
            details = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                errors.append(str(details["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
                errors.append(str(details["args"]))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                errors.append(details["entry"]["text"])
        return errors

    def requests(self) -> list[str]:
        """The addresses that the page has asked for since it was opened, its own included."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def press(self, key: str, *, text: str = "") -> None:
        """Press and release a key."""
        code = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code)
