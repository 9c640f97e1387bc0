"""`prepare`: makes files beforehand that runs need. Imported only when the command runs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest.cli.output import Output
from windrow.ingest.native.calling import Compiled
from windrow.ingest.runner.spark.class_archive import make_archive
from windrow.ingest.runner.spark.local import archive_options

PASSES = (
    "formats.avro.scan",
    "formats.csv.scan",
    "formats.json.scan",
    "formats.protobuf.scan",
    "formats.shared.entries",
    "schema.hashes",
    "sinks.kafka.passes",
    "sinks.kit.columns.text_concat_pass",
    "source.reader.passes",
)
"""The modules in `windrow.ingest` whose functions are compiled."""


class Prepared(msgspec.Struct):
    """The document of `prepare`.

    Attributes:
        compiled: the number of compiled modules.
        archive: Java's archive of Spark's classes; None if Java made none.
    """

    compiled: int
    archive: str | None = None


def prepare(output: Output) -> None:
    """Makes the packages' bytecode, windrow's machine code and Java's archive of Spark's classes.

    Raises:
        UnreachableError: there is no Java, Spark doesn't start, or the environment's folder
            isn't writable.
    """
    places = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(__file__).parents[2]),
    }
    # some packages have files for other versions of Python, which can't be compiled
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "-j", "0", *sorted(places)],
        capture_output=True,
        check=False,
    )
    # each is made in a process of its own
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(Compiled.keep, _compiled()))
    prepared = Prepared(len(PASSES))
    output.show(prepared, Text(f"{len(PASSES)} modules are machine code for this processor."))
    prepared.archive = str(make_archive())
    output.show(prepared, Text(f"Every Spark of this environment begins with {prepared.archive}."))


def find_unprepared() -> str | None:
    """Describes what `prepare` would still make on this machine; None if nothing."""
    missing = [
        *(["machine code"] if not all(map(Compiled.is_kept, _compiled())) else []),
        *(["Java's archive of Spark's classes"] if not archive_options() else []),
    ]
    return f"there is no {' and no '.join(missing)} yet" if missing else None


def _compiled() -> list[Compiled]:
    return [Compiled(f"windrow.ingest.{module}") for module in PASSES]
