"""A headless Chromium that is controlled by the DevTools protocol.

It is the system's Chromium, or else Debian's package, unpacked below .windrow.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.bench.harness.environments import debian, environment_folder

_SECONDS = 120
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # Chromium as root has no sandbox; it opens only this machine's pages
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Page:
    """A page of the browser.

    Attributes:
        errors: errors on its console.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.errors: list[str] = []
        self._connection = connection
        self._message_id = 0
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setTimezoneOverride", timezoneId="UTC")
        self._size = (0, 0)

    def resize(self, width: int, height: int) -> None:
        """Changes the size of the window."""
        self._size = width, height
        metrics = {"deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, **metrics)

    def open(self, url: str, *texts: str) -> None:
        """Goes to a page, and waits until it shows all these texts.

        Raises:
            TimeoutError: some texts didn't appear; the message has them, and the page's text.
        """
        self._call("Page.navigate", url=url)
        self.wait(*texts)

    def wait(self, *texts: str) -> None:
        """Waits until the page shows all these texts and loads nothing, and 1.5 seconds more."""
        missing_and_shown = self._value(f"""new Promise((resolve) => {{
            const wanted = {json.dumps(texts)}, until = Date.now() + {_SECONDS} * 1000;
            const look = () => {{
                const shown = document.body ? document.body.innerText : "";
                const left = wanted.filter((text) => !shown.includes(text));
                const loads = document.querySelector(`[class*="pinner"]`);
                if (loads || shown.includes("Loading")) left.push("the end of Loading");
                if (left.length && Date.now() < until) setTimeout(look, 100);
                else setTimeout(() => resolve([left, shown]), 1500);
            }};
            look();
        }})""")
        if missing_and_shown[0]:
            raise TimeoutError(
                f"The page never showed {missing_and_shown[0]}, but:\n{missing_and_shown[1][:4000]}"
            )

    def click(self, text: str) -> None:
        """Clicks the first button, link or icon with exactly this text, label or class.

        Raises:
            TimeoutError: there was none.
        """
        position = self._value(f"""new Promise((resolve) => {{
            const wanted = {json.dumps(text)}, until = Date.now() + {_SECONDS} * 1000;
            const names = (e) => [e.innerText, e.ariaLabel, ...e.classList];
            const look = () => {{
                const all = [...document.querySelectorAll("button, a, .codicon")];
                const hit = all.find((e) => names(e).includes(wanted));
                if (!hit && Date.now() < until) return setTimeout(look, 100);
                if (!hit) return resolve(null);
                hit.scrollIntoView({{block: "nearest"}});
                const {{x, y, width, height}} = hit.getBoundingClientRect();
                resolve({{x: x + width / 2, y: y + height / 2}});
            }};
            look();
        }})""")
        if position is None:
            raise TimeoutError(f"Nothing on the page is called {text!r}")
        for event_type in ("mousePressed", "mouseReleased"):
            self._call(
                "Input.dispatchMouseEvent", type=event_type, button="left", clickCount=1, **position
            )

    def picture(self, x_start: int, y_start: int) -> bytes:
        """Returns the page right of and below this point as a PNG."""
        width, height = self._size
        clip = {
            "x": x_start,
            "y": y_start,
            "width": width - x_start,
            "height": height - y_start,
            "scale": 1,
        }
        screenshot = self._call("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(screenshot["data"])

    def _value(self, script: str) -> Any:
        done = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:1000])
        return done["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._message_id += 1
        self._connection.send(
            json.dumps({"id": self._message_id, "method": method, "params": parameters})
        )
        while True:
            message = json.loads(self._connection.recv(timeout=_SECONDS + 30))
            if message.get("id") == self._message_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._hear(message.get("method", ""), message.get("params", {}))

    def _hear(self, method: str, parameters: Mapping[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        if method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
            )
        if method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.errors.append(json.dumps(parameters["args"])[:500])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Yields the only page of a browser whose profile is in this folder."""
    program, environment = _chromium()
    process = subprocess.Popen(
        [*program, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(folder / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as response:
            [page] = [target for target in json.load(response) if target["type"] == "page"]
        with connect(page["webSocketDebuggerUrl"], max_size=None, open_timeout=60) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        process.wait(60)


def _chromium() -> tuple[Sequence[str | Path], Mapping[str, str]]:
    """Returns the program and its environment."""
    program = shutil.which("chromium")
    if program is not None:
        return [program], os.environ
    home = environment_folder("chromium", Path(__file__).parent, debian)
    libraries = ":".join(sorted({str(path.parent) for path in home.rglob("*.so*")}))
    library_paths = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_SYSROOT": str(home)}
    return [home / "usr/lib/chromium/chromium"], {**os.environ, **library_paths}


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Returns the browser's port, which it writes into a file."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if file.exists() and (text := file.read_text(encoding="ascii")):
            return int(text.split()[0])
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError("The browser didn't begin")
