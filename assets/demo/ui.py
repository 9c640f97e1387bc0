"""The UI: the broker, Dagster's web server and its daemon, on loopback, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from rich.console import Console

from windrow.assets.demo.place import PROJECT, DemoHome
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, end, find_jars, find_noted, note

_FIRST_PORT = 3000
_STOP_SECONDS = 8.0
_WARNINGS = (
    "ignore:Function `dev_command` is superseded",
    "ignore:Parameter `execution_type` of function `AssetsDefinition",
)
"""Warnings of Dagster about its own code, which its user can't change."""


def serve(home: DemoHome, console: Console) -> None:
    """Keeps the broker and Dagster running in the foreground, and ends them.

    Raises:
        SpecError: the demo was never run, or the UI is already running.
    """
    if not home.is_set_up():
        raise SpecError("There is nothing to show yet", "setup", "Run the demo first: make demo")
    if find_noted(home.ui_file) is not None:
        raise SpecError(
            "The UI is running already",
            "setup",
            "Open it in the browser, or end it first: make stop",
        )
    # A script's background job inherits an ignored SIGINT. Dagster would inherit it, too,
    # and couldn't be ended by SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console.print("Starting the broker and Dagster ...")
    with EmbeddedBroker(home.kafka, find_jars()):
        _dagster(home, console)


def stop(home: DemoHome) -> list[str]:
    """Stops the UI and the broker; returns their names, if they were running."""
    broker = EmbeddedBroker(home.kafka, home.kafka)  # the jars are needed for a start only
    # asked first, because the UI's process stops the broker when it ends
    broker_ran = broker.running()
    ui_ran = _end(home)
    broker.stop()
    return [name for name, ran in (("Dagster's UI", ui_ran), ("the broker", broker_ran)) if ran]


def _end(home: DemoHome) -> bool:
    """Stops Dagster's processes; returns whether they were running."""
    process = find_noted(home.ui_file)
    home.ui_file.unlink(missing_ok=True)
    if process is not None:
        end([process, *process.children(recursive=True)], signal.SIGTERM, _STOP_SECONDS)
    return process is not None


def _dagster(home: DemoHome, console: Console) -> None:
    port = _free_port()
    options = f"-h 127.0.0.1 -p {port} --log-level error".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "dagster", "dev", "-m", "windrow.assets.definitions", *options],
        cwd=PROJECT,
        env=os.environ
        | {"DAGSTER_HOME": str(home.dagster_home), "PYTHONWARNINGS": ",".join(_WARNINGS)},
    )
    try:
        note(home.ui_file, process.pid)
        if _answers(port, process):
            console.print(
                f"Dagster's UI: http://127.0.0.1:{port}/assets/orders   (Ctrl-C, or `make stop`"
                " elsewhere, ends it)"
            )
        process.wait()
    except KeyboardInterrupt:
        console.print("Stopping ...")
    finally:
        _end(home)
        process.wait()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Waits until the port takes connections; returns False if the process ends before."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    return False


def _free_port() -> int:
    """Returns the first free port from 3000 on."""
    for port in range(_FIRST_PORT, _FIRST_PORT + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SpecError(
        f"No free port from {_FIRST_PORT} on", "setup", "End some programs and try again."
    )
