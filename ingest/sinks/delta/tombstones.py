"""Tombstones: the keys that a window deleted, in a file that its receipt names by its content.

A deleted row leaves no trace in the table. So an older window that is committed after a
newer one would bring back a key that the newer one deleted; it reads the tombstones of all
later windows, of which there are none as long as windows come in their order. Tombstones
repeat what the window's own messages say, whatever the table held: the last change of each
of these keys deletes its row. Each has the place of its message,
by which replayed messages of the same window come before or after it.
"""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import DamagedError, UnreachableError
from windrow.ingest.model.receipt import Receipt, Tombstones
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.staged_files import new_path

TOMBSTONES = "_windrow/tombstones"
"""The folder of the files; receipts name them."""

_BUCKETS = "windrow.buckets"
_CHUNK = 1 << 20
_LOST = (
    "Restore the table's _windrow directory from a backup. Until then no window before this one can"
    " be committed or replaced: nobody could tell which of its keys were taken out since."
)


class TombstonesWriter:
    """Writes the tombstones of one attempt, bucket by bucket. Without any there is no file."""

    def __init__(self, place: Place, attempt: str) -> None:
        self._place = place
        self._path = new_path(TOMBSTONES, attempt)
        self._buckets: list[int] = []
        self._keys = 0
        self._out: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, bucket: int, keys: pa.Table) -> None:
        """Adds all keys of a bucket, each with its place; each bucket at most once."""
        if not keys.num_rows:
            return
        if self._writer is None:
            self._out = self._place.create(self._path)
            self._writer = pq.ParquetWriter(
                self._out, keys.schema, compression="zstd", write_page_checksum=True
            )
        self._writer.write_table(keys, row_group_size=keys.num_rows)
        self._buckets.append(bucket)
        self._keys += keys.num_rows

    def close(self) -> Tombstones | None:
        """Ends and syncs the file; gives what the receipt is to name, or None without keys."""
        if self._writer is None or self._out is None:
            return None
        self._writer.add_key_value_metadata({_BUCKETS: json.dumps(self._buckets)})
        self._writer.close()
        self._out.close()
        self._place.finish(self._path)
        return Tombstones(self._path, _sha256(self._place, self._path), self._keys)


class TombstonesOf:
    """The tombstones of a committed window, compared with its receipt when this is made.

    Raises:
        DamagedError: they are missing, or aren't those that the receipt names.
        UnreachableError: they can't be read.
    """

    def __init__(self, place: Place, receipt: Receipt) -> None:
        named = tombstones_named(receipt)
        self._place, self._path = place, "" if named is None else named.path
        self._buckets: list[int] = []
        if named is None:
            return
        try:
            whole = _sha256(place, named.path) == named.sha256
        except FileNotFoundError:
            raise _lost(receipt, named, "missing") from None
        if not whole:
            raise _lost(receipt, named, "damaged")
        with (
            place.filesystem().open_input_file(named.path) as source,
            pq.ParquetFile(source) as file,
        ):
            self._buckets = json.loads(file.metadata.metadata[_BUCKETS.encode()])

    @property
    def buckets(self) -> frozenset[int]:
        """The buckets that have any."""
        return frozenset(self._buckets)

    def keys(self, bucket: int) -> pa.Table | None:
        """The keys of a bucket, each with the place of its message; None if there are none."""
        if bucket not in self._buckets:
            return None
        with (
            self._place.filesystem().open_input_file(self._path) as source,
            pq.ParquetFile(source) as file,
        ):
            return file.read_row_group(self._buckets.index(bucket), use_threads=False)


def tombstones_named(receipt: Receipt) -> Tombstones | None:
    """The tombstones that a receipt names, if any."""
    return None if receipt.merged is None else receipt.merged.tombstones


def _sha256(place: Place, path: str) -> str:
    try:
        digest = hashlib.sha256()
        with place.filesystem().open_input_stream(path) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreachableError(
            f"the file {path} can't be read: {error}",
            "commit",
            "Check the table's storage and rights.",
        ) from error


def _lost(receipt: Receipt, named: Tombstones, state: str) -> DamagedError:
    what = (
        f"the file {named.path}, which says which {named.keys} keys the committed window"
        f" {receipt.window.key} took out, is {state}"
    )
    return DamagedError(what, "commit", _LOST)
