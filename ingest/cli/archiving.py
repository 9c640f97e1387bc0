"""`spark archive`: Java's archive of Spark's classes. Loaded only when the command runs."""

from __future__ import annotations

import msgspec
from rich.text import Text

from windrow.ingest.cli.output import Output
from windrow.ingest.runner.spark.archive import make_archive


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
    archive = make_archive()
    size = archive.stat().st_size
    output.show(
        Archived(str(archive), size),
        Text(
            f"Every Spark of this environment begins with {archive} ({size >> 20} MB) from now on."
        ),
    )
