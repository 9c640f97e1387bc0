"""`broker run`: a real Kafka in the foreground. Loaded only when the command runs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest.cli.output import Output, stop_event
from windrow.ingest.errors import SpecError, UnreachableError


class Serving(msgspec.Struct):
    """The document of `broker run`, printed when the broker is up."""

    bootstrap_servers: str
    folder: str


def run_broker(output: Output, folder: Path | None, port: int | None) -> None:
    """Runs the embedded Kafka until Ctrl-C or SIGTERM.

    `folder`: of its files; None: $WINDROW_HOME/broker.

    Raises:
        SpecError: one runs in this folder already; it goes on.
        UnreachableError: it doesn't start, or ends by itself.
    """
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker

    folder = folder or Path(os.environ.get("WINDROW_HOME", ".windrow")) / "broker"
    broker = EmbeddedBroker(folder, port=port)
    if (runs := broker.process()) is not None:
        raise SpecError(
            f"A Kafka of {folder} runs already, and answers on {broker.bootstrap}",
            "setup",
            f"Use it, or end it first: Ctrl-C where it was started, or kill {runs.pid}.",
        )
    stopped = stop_event()
    with broker:
        text = Text(
            f"Kafka answers on {broker.bootstrap}; its files are in {folder}. Ctrl-C ends it."
        )
        output.show(Serving(broker.bootstrap, str(folder)), text)
        output.finish()
        while not stopped.wait(0.5):
            if broker.stopped():
                output.say("Another program has stopped this Kafka.")
                return
            if not broker.running():
                raise UnreachableError(
                    "Kafka ended, and not by Ctrl-C here", "setup", f"See {folder / 'broker.log'}."
                )
