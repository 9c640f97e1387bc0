"""Metadata of a change message: the table that changed, and the kind of change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.arrays import as_letters, keep_rows, without_repeats
from windrow.ingest.formats.cdc.envelope import (
    DATABASE,
    SCHEMA,
    TABLE,
    ChangeKind,
    Envelope,
)
from windrow.ingest.formats.shared.nesting import Leaf, path_text, pick, refuse_nulls
from windrow.ingest.ports.decoder import SCHEMA as SCHEMA_STAGE
from windrow.ingest.ports.decoder import Decode, Decoded, Refusal
from windrow.ingest.schema.columns import Column
from windrow.ingest.schema.message_fields import FieldPath

FieldNames = Callable[[bytes, FieldPath], AbstractSet[str]]

_LETTERS = pa.array([chr(byte) for byte in range(128)])
"""All texts of one byte."""


@dataclass(frozen=True)
class Included:
    """Regular expressions for the databases and tables whose rows are wanted.

    Attributes:
        database: has to match the whole name of the database; None matches every name.
        table: has to match the whole name of the table, alone or after the name of its
            schema and a dot if the envelope has a schema; None matches every name.
    """

    database: str | None = None
    table: str | None = None

    @property
    def patterns(self) -> dict[str, str]:
        """Expression for the whole name, by `DATABASE` or `TABLE`."""
        both = {DATABASE: self.database, TABLE: self.table}
        return {
            name: rf"\A(?:{pattern})\z" for name, pattern in both.items() if pattern is not None
        }

    def check(self) -> None:
        """Checks that RE2 takes each expression, so that matching takes linear time.

        Raises:
            SpecError: RE2 refuses an expression.
        """
        for name, pattern in ((DATABASE, self.database), (TABLE, self.table)):
            try:
                pc.match_substring_regex(pa.array([""]), pattern or "")
            except pa.ArrowInvalid as error:
                raise SpecError(
                    f"decode.{name}_include is not a regular expression of RE2: {error}",
                    "spec",
                    "Write it without backreferences and lookarounds; nothing was read.",
                ) from error


EVERYTHING = Included()


class ChangeMetadata:
    """Decodes the metadata of change messages."""

    def __init__(
        self,
        envelope: Envelope,
        root: FieldPath,
        included: Included,
        names: Mapping[str, FieldPath],
        kinds: Sequence[FieldPath],
        field_names: FieldNames,
    ) -> None:
        """Finds the fields that are needed.

        Args:
            envelope: the tool's envelope.
            root: the path of the envelope in the message.
            included: the tables whose rows are wanted.
            names: the paths of the names of database, schema and table that the messages
                have, by `DATABASE`, `SCHEMA` or `TABLE`.
            kinds: the paths of the fields `kind` and `deleted` that the messages may have.
            field_names: returns the names of a message's fields at a path.
        """
        self._envelope = envelope
        self._field_names = field_names
        self._root = root
        self._included = included
        self._by_topic = envelope.names_topics and included.table is None and TABLE in names
        needed_names = {
            *included.patterns,
            *([SCHEMA] if included.table is not None else []),
            *([TABLE] if self._by_topic else []),
        }
        self._names = {name: (*root, *path) for name, path in names.items() if name in needed_names}
        self._kind = (*root, *envelope.kind)
        self._kinds = kinds

    @property
    def leaves(self) -> list[Leaf]:
        """Columns that have to be decoded for the metadata, with their paths."""
        leaves = [
            (path, Column(path[-1], pa.string(), nullable=True))
            for path in (*self._kinds, *self._names.values())
        ]
        if self._envelope.schema_change is not None:
            name = self._envelope.schema_change
            leaves.append(((*self._root, name), Column(name, pa.bool_(), nullable=True)))
        return leaves

    def classify(
        self, decode: Decode, messages: pa.RecordBatch
    ) -> tuple[Decoded, npt.NDArray[np.int8]]:
        """Classifies messages by their metadata.

        Returns:
            The verdict on each message; and the kind of change of each of its rows. A
            message that changes a row has one row. Any other message is refused (a dead
            letter), filtered (valid, without a row) or dropped (without a value).
        """
        decoded = all_decoded = decode(messages)
        all_changes = self._changes(all_decoded.rows)

        def changes() -> npt.NDArray[np.int8]:
            is_same = decoded.rows is all_decoded.rows
            return all_changes if is_same else self._changes(decoded.rows)

        decoded = keep_rows(
            decoded, (all_changes != ChangeKind.OTHER) & ~self._marks(decoded, messages)
        )
        decoded = self._refuse_other_tables(self._with_included(decoded), messages)
        decoded = decoded.refused(SCHEMA_STAGE, self._refusals(decoded.rows, changes()))
        return decoded, changes()

    def _marks(self, decoded: Decoded, messages: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Returns a mask of messages that change no row: heartbeats and ends of transactions.

        Only a message without a kind of change can be a mark.
        """
        marks = np.zeros(decoded.rows.num_rows, np.bool_)
        if self._envelope.marks:
            rows_without_kind = np.flatnonzero(
                pick(decoded.rows, self._kind).is_null().to_numpy(zero_copy_only=False)
            )
            values = messages.column("value").take(
                decoded.row_index.take(pa.array(rows_without_kind))
            )
            marks[rows_without_kind] = [
                self._envelope.is_mark(self._field_names(value.as_py(), self._root))
                for value in values
            ]
        return marks

    def _refuse_other_tables(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        """Refuses rows of any table that the topic isn't named after.

        A topic has such rows if several tables are routed to it, or if its name was
        configured.
        """
        if not self._by_topic:
            return decoded
        topics, tables = messages.column("topic"), pick(decoded.rows, self._names[TABLE])
        other_table_mask = np.zeros(len(tables), np.bool_)
        distinct_tables = pc.unique(without_repeats(tables)).to_pylist()
        for topic in pc.unique(without_repeats(topics)).to_pylist():
            others = [
                table
                for table in distinct_tables
                if table is not None and not is_called_after(topic, table)
            ]
            if others:
                topic_mask = pc.equal(topics.take(decoded.row_index), topic)
                other_table_mask |= pc.and_(
                    topic_mask, pc.is_in(tables, pa.array(others))
                ).to_numpy(zero_copy_only=False)
        message = (
            "Expected a row of the table that the topic is named after; decode.table_include says"
            " which tables' rows are wanted"
        )
        return decoded.refused(
            SCHEMA_STAGE,
            [
                Refusal(
                    np.flatnonzero(other_table_mask),
                    "other_table",
                    f"{message} - at {path_text(self._names[TABLE])}",
                )
            ],
        )

    def _with_included(self, decoded: Decoded) -> Decoded:
        """Filters messages of databases and tables that aren't wanted.

        Messages without a needed name are refused.
        """
        patterns = self._included.patterns
        if not patterns:
            return decoded
        decoded = decoded.refused(
            SCHEMA_STAGE,
            [
                refuse_nulls(pick(decoded.rows, self._names[name]), path_text(self._names[name]))
                for name in patterns
            ],
        )
        row_mask = np.ones(decoded.rows.num_rows, np.bool_)
        names = {name: pick(decoded.rows, path) for name, path in self._names.items()}
        distinct_names = {name: without_repeats(texts) for name, texts in names.items()}
        if {len(texts) for texts in distinct_names.values()} == {1}:
            names = distinct_names  # of one row, whose mask is that of all
        for name, pattern in patterns.items():
            matches = _matches(names[name], pattern)
            if name == TABLE and SCHEMA in names:
                full_names = pc.binary_join_element_wise(names[SCHEMA], names[name], ".")
                matches = pc.or_(matches, pc.fill_null(_matches(full_names, pattern), False))
            row_mask &= matches.to_numpy(zero_copy_only=False).astype(np.bool_)
        return keep_rows(decoded, row_mask)

    def _changes(self, metadata_rows: pa.RecordBatch) -> npt.NDArray[np.int8]:
        """Returns the kind of change of each row; -1 for an unknown word."""
        kinds = self._texts(metadata_rows, self._kind)
        # Debezium's words are letters, of which a batch has many, and each is looked up once.
        letters = as_letters(kinds)
        words = pa.array([word for word, _ in self._envelope.words])
        stand_for = np.array([-1, *(change for _, change in self._envelope.words)], np.int8)
        numbers = pc.fill_null(pc.index_in(kinds if letters is None else _LETTERS, words), -1)
        changes: npt.NDArray[np.int8] = stand_for[1 + numbers.to_numpy()]
        changes = changes if letters is None else changes[letters]
        if self._envelope.is_flat:
            changes[kinds.is_null().to_numpy(zero_copy_only=False)] = ChangeKind.UPDATED
        if self._envelope.deleted is not None:
            deleted = self._texts(metadata_rows, (*self._root, self._envelope.deleted))
            is_deleted = pc.fill_null(pc.equal(deleted, "true"), False)
            changes[is_deleted.to_numpy(zero_copy_only=False)] = ChangeKind.REMOVED
        if self._envelope.schema_change is not None:
            of_schema = pc.fill_null(
                pick(metadata_rows, (*self._root, self._envelope.schema_change)), False
            ).to_numpy(zero_copy_only=False)
            changes[of_schema & (changes != ChangeKind.TRUNCATED)] = ChangeKind.OTHER
        return changes

    def _texts(self, metadata_rows: pa.RecordBatch, path: FieldPath) -> pa.StringArray:
        """Returns the texts at a path; all are null if the messages don't have it."""
        return (
            pick(metadata_rows, path)
            if path in self._kinds
            else pa.nulls(metadata_rows.num_rows, pa.string())
        )

    def _refusals(
        self, metadata_rows: pa.RecordBatch, changes: npt.NDArray[np.int8]
    ) -> Sequence[Refusal]:
        kind_path = path_text(self._kind)
        known_words = ", ".join(word for word, _ in self._envelope.words)
        unknown_rows, truncated_rows = (
            np.flatnonzero(changes < 0),
            np.flatnonzero(changes == ChangeKind.TRUNCATED),
        )
        without_kind = self._texts(metadata_rows, self._kind).take(pa.array(unknown_rows)).is_null()
        missing_rows = unknown_rows[without_kind.to_numpy(zero_copy_only=False)]
        return [
            Refusal(missing_rows, "missing", f"Expected a value, got none - at {kind_path}"),
            Refusal(
                unknown_rows,
                "unknown_change",
                f"Expected a change of {self._envelope.tool} ({known_words}) - at {kind_path}",
            ),
            Refusal(
                truncated_rows,
                "truncate",
                f"Expected the change of a row, got the removal of all rows - at {kind_path}",
            ),
        ]


def _matches(names: pa.StringArray, pattern: str) -> pa.BooleanArray:
    """Returns whether each name matches. A batch has few names, so each is matched once."""
    encoded = pc.dictionary_encode(names)
    return pc.match_substring_regex(encoded.dictionary, pattern).take(encoded.indices)


def is_called_after(topic: str, table: str) -> bool:
    """Returns whether the last part of a topic's name is a table's name.

    Case doesn't matter. Characters other than letters and digits count as equal, because a
    tool replaces characters that a topic's name can't have. A table's name without letters
    and digits matches every topic.
    """
    name, of_table = (
        re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") for text in (topic, table)
    )
    return f"_{name}".endswith(f"_{of_table}") or not of_table
