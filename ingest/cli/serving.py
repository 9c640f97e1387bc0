"""`broker run` and `spark run`: a real Kafka, and a Spark that stays up, in the foreground.

Loaded only when a command runs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from windrow.ingest.cli.output import Output
from windrow.ingest.errors import UnreachableError

if TYPE_CHECKING:
    from windrow.ingest.registry.embedded import RegistryServer


class Serving(msgspec.Struct):
    """The document of `broker run`, printed when the broker is up."""

    bootstrap_servers: str
    folder: str
    registry: str | None


def run_broker(output: Output, folder: Path, port: int | None, *, registry: bool) -> None:
    """The embedded Kafka until Ctrl-C or SIGTERM; with a schema registry in memory, if that is wanted.

    Raises:
        UnreachableError: it doesn't come up, or ends by itself.
    """  # noqa: E501
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

    ended = _until_told()
    with (
        EmbeddedBroker(folder, find_jars(), port) as broker,
        _registry() if registry else nullcontext() as server,
    ):
        url = None if server is None else server.url
        beside = (
            ""
            if url is None
            else f" A schema registry answers on {url}; its schemas are in memory and end with it."
        )
        text = Text(
            f"Kafka answers on {broker.bootstrap}; its files are in {folder}.{beside} Ctrl-C"
            " ends it."
        )
        output.show(Serving(broker.bootstrap, str(folder), url), text)
        output.finish()
        while not ended.wait(0.5):
            if broker.stopped():
                return  # by somebody else, on purpose
            if not broker.running():
                raise UnreachableError(
                    "The broker ended by itself", "setup", f"See {folder / 'broker.log'}."
                )


def _registry() -> RegistryServer:
    from windrow.ingest.registry.embedded import RegistryServer

    return RegistryServer()


class Connected(msgspec.Struct):
    """The document of `spark run`, printed when the server is up."""

    connect: str


def run_spark(
    output: Output,
    master: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    settings: Mapping[str, str],
) -> None:
    """A Spark Connect server until Ctrl-C or SIGTERM. `master`: where its tasks run;
    None: on this machine.

    Raises:
        SpecError: there is no token in the file, or it would listen to other machines without one.
        UnreachableError: the port is taken, Spark doesn't start, or the server ends by itself.
    """
    from windrow.ingest.runner.spark.connect import read_token
    from windrow.ingest.runner.spark.local import MASTER
    from windrow.ingest.runner.spark.server import spark_server

    ended = _until_told()
    token = None if token_file is None else read_token(token_file)
    with spark_server(host, port, token, settings, master or MASTER) as server:
        text = Text(f"Spark answers on {server.address}. Ctrl-C ends it.")
        output.show(Connected(server.address), text)
        output.finish()
        while not ended.wait(0.5):
            if not server.running():
                raise UnreachableError(
                    "The Spark Connect server ended by itself",
                    "setup",
                    "Start it again; what it said is above.",
                )


def _until_told() -> threading.Event:
    """What Ctrl-C and SIGTERM set from now on."""
    ended = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: ended.set())
    return ended


def default_folder() -> Path:
    """Where the embedded broker lives if nothing is said."""
    return Path(os.environ.get("WINDROW_HOME", ".windrow")) / "broker"
