"""Tombstones: the keys that a window deleted, in a file whose hash the receipt has.

A deleted row leaves no trace in the table. So an older window that is committed after a newer
window would restore a key that the newer window deleted. To prevent that, a merge reads the
tombstones of all later windows. There are none while windows come in their order.

A key has a tombstone if the window's last change of it is a deletion, whether or not the table
had such a row. Each tombstone has its message's topic, partition and offset, to compare it with
replayed messages of the window.
"""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import DamagedError, UnreachableError, format_count
from windrow.ingest.model.receipt import Receipt, Tombstones
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.staged_files import staged_path

TOMBSTONES = "_windrow/tombstones"
"""The folder of the files. Receipts name the files."""

_BUCKETS = "windrow.buckets"
_CHUNK = 1 << 20
_LOST = (
    "Restore the table's _windrow directory from a backup. Until then no window before this one can"
    " be committed or replaced: it isn't known which of its keys were deleted since."
)


class TombstonesWriter:
    """Writes the tombstones of one attempt, bucket by bucket; no file if there are none."""

    def __init__(self, folder: Place, attempt: str) -> None:
        self._folder = folder
        self._path = staged_path(TOMBSTONES, attempt)
        self._buckets: list[int] = []
        self._keys = 0
        self._out: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, bucket: int, keys: pa.Table) -> None:
        """Adds all keys of a bucket, with their messages' offsets; once for each bucket."""
        if not keys.num_rows:
            return
        if self._writer is None:
            self._out = self._folder.create(self._path)
            self._writer = pq.ParquetWriter(
                self._out, keys.schema, compression="zstd", write_page_checksum=True
            )
        self._writer.write_table(keys, row_group_size=keys.num_rows)
        self._buckets.append(bucket)
        self._keys += keys.num_rows

    def close(self) -> Tombstones | None:
        """Closes and syncs the file; returns the receipt's entry, or None without keys."""
        if self._writer is None or self._out is None:
            return None
        self._writer.add_key_value_metadata({_BUCKETS: json.dumps(self._buckets)})
        self._writer.close()
        self._out.close()
        self._folder.finish(self._path)
        return Tombstones(self._path, _sha256(self._folder, self._path), self._keys)


class TombstonesOf:
    """The tombstones of a committed window.

    The constructor compares the file's hash with the receipt.

    Raises:
        DamagedError: the file is missing, or isn't the one that the receipt names.
        UnreachableError: the file can't be read.
    """

    def __init__(self, folder: Place, receipt: Receipt) -> None:
        named = find_tombstones(receipt)
        self._folder, self._path = folder, "" if named is None else named.path
        self._buckets: list[int] = []
        if named is None:
            return
        try:
            is_intact = _sha256(folder, named.path) == named.sha256
        except FileNotFoundError:
            raise _damaged_error(receipt, named, "missing") from None
        if not is_intact:
            raise _damaged_error(receipt, named, "damaged")
        with (
            folder.filesystem().open_input_file(named.path) as source,
            pq.ParquetFile(source) as file,
        ):
            self._buckets = json.loads(file.metadata.metadata[_BUCKETS.encode()])

    @property
    def buckets(self) -> frozenset[int]:
        """The buckets that have tombstones."""
        return frozenset(self._buckets)

    def keys(self, bucket: int) -> pa.Table | None:
        """Returns the keys of a bucket, with their messages' offsets; None if there are none."""
        if bucket not in self._buckets:
            return None
        with (
            self._folder.filesystem().open_input_file(self._path) as source,
            pq.ParquetFile(source) as file,
        ):
            return file.read_row_group(self._buckets.index(bucket), use_threads=False)


def find_tombstones(receipt: Receipt) -> Tombstones | None:
    """Returns the receipt's entry of tombstones; None if it has none."""
    return None if receipt.merged is None else receipt.merged.tombstones


def _sha256(folder: Place, path: str) -> str:
    try:
        digest = hashlib.sha256()
        with folder.filesystem().open_input_stream(path) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreachableError(
            f"the file {path} can't be read: {error}",
            "commit",
            "Check the table's storage and rights, then run this again.",
        ) from error


def _damaged_error(receipt: Receipt, named: Tombstones, state: str) -> DamagedError:
    return DamagedError(
        f"the file {named.path}, which says which {format_count(named.keys, 'key')} the committed"
        f" window {receipt.window.key} took out, is {state}",
        "commit",
        _LOST,
    )
