"""`broker run`, `spark run`, and the Spark of other commands. Imported only when a command runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from windrow.ingest.cli.arguments import SparkOptions
from windrow.ingest.cli.output import Output, stop_event
from windrow.ingest.errors import SpecError, UnreachableError

if TYPE_CHECKING:
    from windrow.ingest.runner.spark.engine import SparkEngine


class Serving(msgspec.Struct):
    """The document of `broker run`, printed when the broker is up."""

    bootstrap_servers: str
    folder: str


def run_broker(output: Output, folder: Path | None, port: int | None) -> None:
    """Keeps the embedded Kafka running until Ctrl-C or SIGTERM.

    Args:
        output: the command's output.
        folder: the folder of its files; None: $WINDROW_HOME/broker.
        port: its port; None: the last one, or else a free one.

    Raises:
        SpecError: a Kafka is already running in this folder. It isn't stopped.
        UnreachableError: Kafka doesn't start, or ends by itself.
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


class Connected(msgspec.Struct):
    """The document of `spark run`, printed when the server is up."""

    connect: str


def run_spark(
    output: Output,
    master: str | None,
    host: str,
    port: int,
    settings: Mapping[str, str],
) -> None:
    """Keeps a Spark Connect server running until Ctrl-C or SIGTERM.

    Args:
        output: the command's output.
        master: the master that runs its tasks; None: this machine.
        host: the address that it listens on.
        port: its port; 0: a free one.
        settings: Spark properties.

    Raises:
        SpecError: other machines could reach the server without a token.
        UnreachableError: the port is taken, Spark doesn't start, or the server ends by
            itself.
    """
    from windrow.ingest.cli.warm import warm
    from windrow.ingest.runner.spark.connect import LOOPBACK
    from windrow.ingest.runner.spark.local import MASTER, is_local
    from windrow.ingest.runner.spark.server import spark_server

    stopped = stop_event()
    with spark_server(host, port, settings, master or MASTER) as server:
        if host in LOOPBACK and is_local(master or MASTER):
            warm(server.address)
        text = Text(f"Spark answers on {server.address}. Ctrl-C ends it.")
        output.show(Connected(server.address), text)
        output.finish()
        while not stopped.wait(0.5):
            if not server.running():
                raise UnreachableError(
                    "The Spark Connect server ended by itself",
                    "setup",
                    "Start it again; see its output above.",
                )


@contextmanager
def engine_at(options: SparkOptions) -> Iterator[SparkEngine | None]:
    """Opens the Spark of a command's options; None if there are no options.

    Raises:
        SpecError: the address isn't that of a Spark Connect server.
    """
    if options.connect is None and options.master is None and not options.properties:
        yield None
        return
    from windrow.ingest.runner.spark.cluster import launch_early, spark_context
    from windrow.ingest.runner.spark.connect import ConnectedSpark
    from windrow.ingest.runner.spark.engine import SparkEngine
    from windrow.ingest.runner.spark.local import MASTER

    if options.connect is not None:
        with closing(ConnectedSpark(options.connect)) as spark:
            yield SparkEngine(spark.session)
        return
    master_and_properties = options.master or MASTER, options.properties
    yield SparkEngine(
        lambda: spark_context(*master_and_properties), lambda: launch_early(*master_and_properties)
    )
