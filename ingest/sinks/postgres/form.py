"""By which columns a table in PostgreSQL is merged, what is kept of rows that go, and
what the table keeps of its key.

Pure.
"""

from __future__ import annotations

import json

import pyarrow as pa

from windrow.ingest.schema.changes import DELETED, UNAVAILABLE
from windrow.ingest.schema.checksum import Hashes, row_hashes
from windrow.ingest.sinks.merging import MergeColumns

_PROPERTY = b"windrow.primary-key"


class KeyedForm(MergeColumns, frozen=True):
    """The same, with what is kept of keys that are taken out, and what the table itself
    keeps of its key.
    """

    @property
    def buries(self) -> bool:
        """Whether keys are taken out so that nothing is left of them in the table."""
        return not self.key.marks and self.key.version is None

    @property
    def tombstone(self) -> list[str]:
        """The columns of a tombstone."""
        return [*self.key.columns, self.window, *self.place]

    def hashes(self, changes: pa.RecordBatch) -> Hashes:
        """The hash of what each change is to leave: of a row as it is to be in the table, or of a tombstone.

        It lies beside them there, and says what is lost with them when another change
        of the key takes their place.
        """  # noqa: E501
        hashes = row_hashes(
            changes, (UNAVAILABLE.name,) if self.key.marks else (UNAVAILABLE.name, DELETED)
        )
        if self.buries:
            deletes = changes.column(DELETED)
            hashes[deletes.to_numpy(zero_copy_only=False)] = row_hashes(
                changes.select(self.tombstone).filter(deletes)
            )
        return hashes

    @property
    def key_properties(self) -> dict[bytes, bytes]:
        """What the table's own schema says of its key, for ever."""
        return {
            _PROPERTY: (
                json.dumps(
                    {
                        "columns": self.key.columns,
                        "marks": self.key.marks,
                        "version": self.key.version,
                    }
                ).encode()
            )
        }


def other_key(current: pa.Schema, wanted: pa.Schema) -> list[str]:
    """In what the keys of two tables differ, in words; nothing if they don't."""
    keys = [(schema.metadata or {}).get(_PROPERTY) for schema in (current, wanted)]
    return (
        []
        if keys[0] == keys[1]
        else [f"{_key_told(keys[0])} in the table, {_key_told(keys[1])} in the spec"]
    )


def _key_told(told: bytes | None) -> str:
    if told is None:
        return "no primary key"
    key = json.loads(told)
    more = [
        *(["mode delete-aware"] if key["marks"] else []),
        *([f"version {key['version']}"] if key["version"] else []),
    ]
    return ", ".join([f"the primary key {', '.join(key['columns'])}", *more])
