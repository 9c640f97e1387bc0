"""What a message says before its rows are looked at: whose row it is of, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.cdc.arrays import chosen, missing, path_text, picked
from ingest.decode.cdc.envelope import DATABASE, TABLE, ChangeKind, Envelope, FieldPath
from ingest.decode.cdc.inner import nested
from ingest.errors import SpecError
from ingest.ports.decoder import SCHEMA, Decode, Decoded, Refusal
from ingest.schema.columns import Column, Columns


@dataclass(frozen=True)
class Included:
    """Whose rows are asked for: regular expressions, which the whole name has to match; None: whatever its name."""

    database: str | None = None
    table: str | None = None

    @property
    def patterns(self) -> dict[str, str]:
        """The field of each name, and what it has to match."""
        both = {DATABASE: self.database, TABLE: self.table}
        return {name: rf"\A(?:{pattern})\z" for name, pattern in both.items() if pattern is not None}

    def check(self) -> None:
        """That each is an expression that takes linear time, whatever the name.

        Raises:
            SpecError: one isn't.
        """
        for name, pattern in self.patterns.items():
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid as error:
                what = f"decode.{name}_include is no regular expression that RE2 takes: {error}"
                raise SpecError(what, "spec", "Write it without references back and looks around; nothing was read.") from error


EVERYTHING = Included()


class Heads:
    """Asks messages for their heads. `root`: what the envelope itself lies in."""

    def __init__(self, envelope: Envelope, root: FieldPath, included: Included) -> None:
        self._envelope = envelope
        self._root = root
        self._included = included

    @property
    def columns(self) -> Columns:
        """What has to be decoded for it."""
        texts = [self._envelope.kind, *self._included.patterns]
        leaves = [((*self._root, name), Column(name, pa.string(), nullable=True)) for name in texts]
        if self._envelope.schema_change is not None:
            name = self._envelope.schema_change
            leaves.append(((*self._root, name), Column(name, pa.bool_(), nullable=True)))
        return nested(leaves)

    def asked(self, decode: Decode, messages: pa.RecordBatch) -> tuple[Decoded, npt.NDArray[np.int8]]:
        """What is wrong with the messages by their heads, or counted only; and of each that is left its change, WRITTEN or REMOVED."""
        found = decode(messages)
        found = self._of_others(found)
        changes = self._changes(found.rows)
        found = found.refused(SCHEMA, self._refusals(found.rows, changes))
        changes = self._changes(found.rows)
        rows = np.flatnonzero(changes != ChangeKind.OTHER)
        return found.with_rows(found.rows.take(pa.array(rows)), rows), changes[rows]

    def _of_others(self, found: Decoded) -> Decoded:
        """Without the messages of tables that aren't asked for, and those that don't say whose they are."""
        nameless = [missing(self._column(found.rows, name), self._shown(name)) for name in self._included.patterns]
        found = found.refused(SCHEMA, nameless)
        kept = np.ones(found.rows.num_rows, np.bool_)
        for name, pattern in self._included.patterns.items():
            kept &= pc.match_substring_regex(self._column(found.rows, name), pattern).to_numpy(zero_copy_only=False).astype(np.bool_)
        return chosen(found, kept)

    def _changes(self, heads: pa.RecordBatch) -> npt.NDArray[np.int8]:
        """What each row's word stands for; -1: nothing."""
        words = pa.array([word for word, _ in self._envelope.words])
        stand_for = np.array([-1, *(change for _, change in self._envelope.words)], np.int8)
        numbers = pc.fill_null(pc.index_in(self._column(heads, self._envelope.kind), words), -1)
        changes: npt.NDArray[np.int8] = stand_for[1 + numbers.to_numpy()]
        if self._envelope.schema_change is not None:
            of_schema = pc.fill_null(self._column(heads, self._envelope.schema_change), False).to_numpy(zero_copy_only=False)
            changes[of_schema & (changes != ChangeKind.TRUNCATED)] = ChangeKind.OTHER
        return changes

    def _refusals(self, heads: pa.RecordBatch, changes: npt.NDArray[np.int8]) -> Sequence[Refusal]:
        words, at = self._column(heads, self._envelope.kind), self._shown(self._envelope.kind)
        of_schema = pa.array(changes == ChangeKind.OTHER)
        known = ", ".join(word for word, _ in self._envelope.words)
        unknown, all_rows = np.flatnonzero(changes < 0), np.flatnonzero(changes == ChangeKind.TRUNCATED)
        return [
            missing(pc.if_else(of_schema, "", words), at),
            Refusal(unknown, "unknown_change", f"Expected a change that {self._envelope.tool} has ({known}) - at {at}"),
            Refusal(all_rows, "truncate", f"Expected the change of a row, got all rows' removal - at {at}"),
        ]

    def _column(self, heads: pa.RecordBatch, name: str) -> pa.Array:
        return picked(heads, (*self._root, name))

    def _shown(self, name: str) -> str:
        return path_text((*self._root, name))
