"""`broker run`: a real Kafka in the foreground. Loaded only when the command runs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import msgspec
from rich.text import Text

from ingest.cli.output import Output
from ingest.errors import UnreachableError
from ingest.kafka.embedded.server import EmbeddedBroker, find_jars


class Serving(msgspec.Struct):
    """The document of `broker run`, printed when the broker is up."""

    bootstrap_servers: str
    folder: str


def run_broker(output: Output, folder: Path, port: int | None) -> None:
    """The embedded Kafka until Ctrl-C or SIGTERM.

    Raises:
        UnreachableError: it doesn't come up, or ends by itself.
    """
    ended = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: ended.set())
    with EmbeddedBroker(folder, find_jars(), port) as broker:
        text = Text(f"Kafka answers on {broker.bootstrap}; its files are in {folder}. Ctrl-C ends it.")
        output.show(Serving(broker.bootstrap, str(folder)), text)
        output.finish()
        while not ended.wait(0.5):
            if broker.stopped():
                return  # by somebody else, on purpose
            if not broker.running():
                raise UnreachableError("The broker ended by itself", "setup", f"See {folder / 'broker.log'}.")


def default_folder() -> Path:
    """Where the embedded broker lives if nothing is said."""
    return Path(os.environ.get("WINDROW_HOME", ".windrow")) / "broker"
