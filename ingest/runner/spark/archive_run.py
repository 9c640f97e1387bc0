"""The program that `archive.make_archive` starts: Spark begins, runs one job of the
shape that every window's has, and its Java ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from windrow.ingest.runner.spark.local import JAVA, local_session

SECONDS = 120
"""How long Java may take to write the archive, once it was told to end."""


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass on what comes."""
    yield from batches


def main(options: str) -> None:
    """Java writes its archive when it ends, which nobody would wait for otherwise."""
    session = local_session("local[2,4]", {"spark.driver.extraJavaOptions": f"{JAVA} {options}"})
    session.range(0, 2, 1, 2).mapInArrow(same, "id long").collect()
    gateway: Any = session.sparkContext._gateway  # its process is Java; nothing public leads there  # noqa: SLF001
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
