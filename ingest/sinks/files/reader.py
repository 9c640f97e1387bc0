"""Lists the files of a table of files, for its readers.

`python -m windrow.ingest.sinks.files.reader PLACE` prints them.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.sinks.files.store import FilesStore


def list_files(uri: str) -> list[str]:
    """Returns paths or URLs of the table's files, which have exactly the committed rows.

    A file that another generation replaced is kept for the grace period of `windrow maintain`.

    Raises:
        SpecError: there is no table of files at this place.
        DamagedError, UnreachableError: the log or the pages can't be read.
    """
    return [f"{FilesStore(uri).location}/{path}" for path in list_table(uri)[1]]


def list_table(uri: str) -> tuple[pa.Schema, list[str]]:
    """Returns the columns of a table of files, and the paths of its files below its place.

    Raises:
        SpecError, DamagedError, UnreachableError: as `list_files`.
    """
    store = FilesStore(uri)
    with store.reading() as state:
        if state is None:
            raise SpecError(
                f"there is no table of files at {store.location}", "setup", "Name its sink.path."
            )
        return state.schema, [file.path for file in state.row_files()]


def main(arguments: list[str]) -> int:
    """Prints the files; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m windrow.ingest.sinks.files.reader PLACE\n")
        return 2
    try:
        sys.stdout.writelines(f"{file}\n" for file in list_files(arguments[0]))
    except WindrowError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
