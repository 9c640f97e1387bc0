"""`spark run` and `spark archive`. Loaded only when a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from windrow.ingest.cli.output import Output, stop_event
from windrow.ingest.errors import UnreachableError

if TYPE_CHECKING:
    from windrow.ingest.runner.spark.spark import SparkEngine


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

    stopped = stop_event()
    token = None if token_file is None else read_token(token_file)
    with spark_server(host, port, token, settings, master or MASTER) as server:
        text = Text(f"Spark answers on {server.address}. Ctrl-C ends it.")
        output.show(Connected(server.address), text)
        output.finish()
        while not stopped.wait(0.5):
            if not server.running():
                raise UnreachableError(
                    "The Spark Connect server ended by itself",
                    "setup",
                    "Start it again; what it said is above.",
                )


class Archived(msgspec.Struct):
    """The document of `spark archive`."""

    archive: str
    bytes: int


def archive_spark(output: Output) -> None:
    """Make the archive.

    Raises:
        UnreachableError: there is no Java, Spark doesn't start, or the environment's
            folder can't be written to.
    """
    from windrow.ingest.runner.spark.archive import make_archive

    archive = make_archive()
    size = archive.stat().st_size
    output.show(
        Archived(str(archive), size),
        Text(
            f"Every Spark of this environment begins with {archive} ({size >> 20} MB) from now on."
        ),
    )


@contextmanager
def engine_at(
    master: str | None, settings: Mapping[str, str], connect: str | None, token_file: Path | None
) -> Iterator[SparkEngine | None]:
    """Opens the Spark that tasks run on: a server that is up, or a master; None where
    neither is named.

    Args:
        master: Spark's.
        settings: Spark properties for it, by name.
        connect: the server's address.
        token_file: holds the token that the server asks for.

    Raises:
        SpecError: the address is not one of a server.
    """
    if connect is None:
        from windrow.ingest.runner.spark.cluster import spark_engine, spark_session
        from windrow.ingest.runner.spark.local import MASTER

        at = MASTER if master is None else master
        yield (
            None
            if master is None and not settings
            else spark_engine(lambda: spark_session(at, settings), at)
        )
        return
    from windrow.ingest.runner.spark.connect import ConnectedSpark

    with closing(ConnectedSpark(connect, token_file)) as spark:
        yield spark.engine()
