"""The log of a table of files: a numbered manifest in JSON for each change. Pure.

    _windrow/log/0000000000/00000000000000000000.json    the table's owner, format and columns
    _windrow/log/0000000000/00000000000000000001.json    the same, and the page of a window

The numbers put all changes of the table in one order. The file of a number can be created only
once. A commit reads manifest N - 1 and creates manifest N. So any two concurrent changes
conflict. With names from windows instead of numbers, a window couldn't be committed twice, but
two windows could have the same offsets.

A manifest describes the whole table. It names the newest page (`sinks.kit.commit.pages`), and
the pages have the windows with their files. So only the newest manifest is read, however old
the table is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.kit import Page, PageLine, RowFile

FILES_LOG = "_windrow/log"
"""The folder of the log. Other kinds recognize a table of files by it."""

FORM = 4
"""The version of the format."""

PER_FOLDER = 256
"""The number of manifests in a folder.

It is part of the format: readers compute a manifest's path from it.
"""


class FilesLine(PageLine, frozen=True, array_like=True):
    """A window's newest generation, with all of its files.

    The version is the number of the last manifest that changed the files.
    """

    files: tuple[RowFile, ...]


class FilesPage(Page, frozen=True):
    """A page whose windows have files."""

    windows: Mapping[str, FilesLine] = {}


class Manifest(msgspec.Struct, frozen=True):
    """The table after one change.

    Attributes:
        windrow: the version of the format.
        previous_fingerprint: the fingerprint of the previous manifest. It differs if this
            manifest was written for an earlier table at the same place.
        owner: the table's owner.
        format: the format of the table's files.
        columns: a serialized Arrow schema.
        page: the name of the newest page; "" before the first.
        partition_by: the table's partition fields, in words (`PartitionField.describe`).
    """

    windrow: int
    previous_fingerprint: str = msgspec.field(name="after")
    owner: TableOwner
    format: str
    columns: bytes
    page: str = ""
    partition_by: str = ""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))


class AnyForm(msgspec.Struct):
    """The field that a manifest has in any version of the format."""

    windrow: int


def encode(manifest: Manifest) -> bytes:
    """Encodes a manifest as a line of JSON."""
    return msgspec.json.encode(manifest) + b"\n"


def fingerprint(content: bytes) -> str:
    """Returns the first 128 bits of a manifest's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def path_of(number: int) -> str:
    """Returns the path of a manifest."""
    return f"{FILES_LOG}/{number // PER_FOLDER:010d}/{number:020d}.json"
