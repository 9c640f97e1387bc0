"""Puts the changes of a window into a table with a primary key, within the transaction
that keeps the receipt.

The server has the last word on every key: as a row of the table, or, where that word
was a delete, as a *tombstone* in a table of windrow's own (`tombstones_<id of the target>`,
with the key, the window, and the place of the message). No key has both. So a merge is:

    1 COPY brings the staged changes into a table of the session's own.     2 Of each
    key the last one is kept: by version, if there is one,
    then by topic, partition and offset, and the order within the message.   3 Those go that come
                            too late for a row or a tombstone: of a later
    window; of a dead-letter replay, also of a later message of it.      4 What is left takes
                            the place of rows and tombstones.

A window's place in time decides, never the order in which windows are committed. Each
step is one statement over all keys. What is counted in the receipt is counted by the
server: each row, and each tombstone, has the hash of its columns beside it.

Of rows only those come to the driver whose change left columns alone (`UNAVAILABLE`),
for they have another hash than was staged. When what they keep is right, and what is
refused for it, says `ingest/sinks/delta/merge.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.schema.changes import DELETED, UNAVAILABLE
from windrow.ingest.sinks.merging import Tally, kept_by, refuse_lost_values, refuse_missing_keys
from windrow.ingest.sinks.postgres.catalog import Target, committed, rows_stay
from windrow.ingest.sinks.postgres.columns import HASH, column_type
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.names import TableName
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier
from windrow.ingest.sinks.postgres.stage import CopyFile, CopyFiles, copy_in

_CHANGES, _WORDS = (
    sql.Identifier("pg_temp", "windrow_changes"),
    sql.Identifier("pg_temp", "windrow_words"),
)
_LOST = (
    "Restore it from a backup, together with the table. Until then no window can be committed:"
    " nobody could tell which keys were taken out."
)


ReceiptsOf = Callable[[Collection[str]], Mapping[str, Committed]]


# --------------------------------------------------------------------------------------------------


def tombstones_name(place: TablePlace, target: Target) -> TableName:
    """Where the tombstones of a table are."""
    return TableName(place.own, f"tombstones_{target.id.hex}")


def refuse_lost_tombstones(connection: Connection, place: TablePlace, target: Target) -> None:
    """See whether the tombstones of a table are there.

    Raises:
        DamagedError: they aren't.
    """
    name = tombstones_name(place, target)
    row = connection.execute("SELECT to_regclass(%s) IS NULL", [name.quoted]).fetchone()
    if row is not None and row[0]:
        raise DamagedError(
            f"the table {name}, which says which keys {place} has lost by deletes, is missing",
            "commit",
            _LOST,
        )


# --------------------------------------------------------------------------------------------------


def merge(
    connection: Connection,
    place: TablePlace,
    target: Target,
    form: KeyedForm,
    columns: pa.Schema,
    receipt: Receipt,
    receipts_of: ReceiptsOf,
    staged: CopyFiles,
    files: Sequence[CopyFile],
) -> Receipt:
    """Merge staged changes into a table, within a transaction; the receipt with what was done.

    Args:
        connection: in a transaction that has the table's lock.
        place: the table's.
        target: it.
        form: by which columns it is merged.
        columns: its own, as they are in this transaction.
        receipt: of the window.
        receipts_of: the newest receipts that this transaction sees of some windows, by key.
        staged: where the files are.
        files: which of them.

    Raises:
        RefusedError: a replacement has nothing to say of keys that are as its window
            left them; a file isn't what was staged; or something else keeps the table
            from taking its rows.
        DamagedError: the tombstones are gone.
    """
    if form.buries:
        refuse_lost_tombstones(connection, place, target)
    merging = _Merge(connection, place, target, form, columns, receipt, receipts_of)
    merging.stage(staged, files)
    merging.keep_the_last()
    merging.drop_what_is_late()
    untold = merging.beaten_by_keeping()
    if receipt.generation > 0:
        untold += merging.left_alone()
        if receipt.dead_replay is None:
            refuse_missing_keys(receipt.window.key, merging.unknown())
            untold += merging.kept_later()
    refuse_lost_values(receipt.window.key, untold)
    merging.fill_in()
    merging.write()
    buried = merging.buried if form.buries else None
    older = (
        receipts_of([receipt.window.key]).get(receipt.window.key)
        if receipt.generation > 0
        else None
    )
    return msgspec.structs.replace(
        receipt, merged=merging.tally.after(None if older is None else older.receipt, buried=buried)
    )


class _Merge:
    """One merge, step by step."""

    def __init__(
        self,
        connection: Connection,
        place: TablePlace,
        target: Target,
        form: KeyedForm,
        columns: pa.Schema,
        receipt: Receipt,
        receipts_of: ReceiptsOf,
    ) -> None:
        self.tally, self.buried = Tally(), Tally()
        self._beaten_by: dict[str, int] = {}
        self._connection, self._place, self._form, self._columns = connection, place, form, columns
        self._tombstones, self._target = tombstones_name(place, target), target
        self._receipts_of = receipts_of
        self._key, self._dead_replay = receipt.window.key, receipt.dead_replay is not None

    def stage(self, files: CopyFiles, chosen: Sequence[CopyFile]) -> None:
        """Bring the staged changes in, in the order in which they stand, beside the table."""
        # who waits for a run that was stopped knows it by this
        self._run("LOCK TABLE {table} IN ROW EXCLUSIVE MODE")
        changes = self._changes.append(UNAVAILABLE)
        columns = [
            sql.SQL("{} {}").format(identifier(f.name), sql.SQL(str(column_type(f.type))))
            for f in changes
        ]
        self._run(
            "CREATE TEMPORARY TABLE {changes} ({columns}, {nth} bigint GENERATED ALWAYS AS"
            " IDENTITY) ON COMMIT DROP",
            columns=sql.SQL(", ").join(columns),
        )
        copy_in(self._connection, self._place, changes, files, chosen, _CHANGES)

    @property
    def _changes(self) -> pa.Schema:
        return (
            self._columns
            if self._form.key.marks
            else self._columns.append(pa.field(DELETED, pa.bool_()))
        )

    @property
    def _last_first(self) -> sql.Composable:
        """The order of changes, key by key."""
        version = (
            []
            if self._form.key.version is None
            else [sql.SQL("{} DESC NULLS LAST").format(identifier(self._form.key.version))]
        )
        topic, *place = map(identifier, self._form.place)
        order = [
            *map(identifier, self._form.key.columns),
            *version,
            sql.SQL('{} COLLATE "C" DESC').format(topic),
            *(sql.SQL("{} DESC").format(name) for name in place),
            sql.SQL("{} DESC").format(self._nth),
        ]
        return sql.SQL(", ").join(order)

    def keep_the_last(self) -> None:
        """Of each key the last change."""
        self._run(
            "CREATE TEMPORARY TABLE {words} ON COMMIT DROP AS SELECT DISTINCT ON ({key}) * FROM"
            " {changes} ORDER BY {order}",
            order=self._last_first,
        )
        self._run("CREATE UNIQUE INDEX ON {words} ({key})")
        self._run("ANALYZE {words}")

    def drop_what_is_late(self) -> None:
        """Changes that come too late for the word that is there.

        Notes of how many keys that is a row, by its window.
        """
        late = (
            "WITH late AS (DELETE FROM {words} w USING {others} t WHERE {same} AND ({wins}) IS NOT"
            " TRUE RETURNING t.{window} AS by) SELECT by, count(*) FROM late GROUP BY by"
        )
        found = [
            self._connection.execute(
                self._query(late, others=others, wins=self._wins()), ()
            ).fetchall()
            for others in self._others()
        ]
        self._beaten_by = dict(found[0])

    def beaten_by_keeping(self) -> int:
        """Of how many keys the word that is there is a row of a window that kept what
        changes left alone.
        """
        found = self._receipts_of(self._beaten_by)
        return sum(
            keys
            for key, keys in self._beaten_by.items()
            if key in found and kept_by(found[key].receipt)
        )

    def kept_later(self) -> int:
        """Of how many keys later windows kept what changes left alone."""
        later = [
            key for key in committed(self._connection, self._place, self._target) if key > self._key
        ]
        return sum(kept_by(one.receipt) for one in self._receipts_of(later).values())

    def left_alone(self) -> int:
        """How many changes leave columns alone."""
        return int(self._one("SELECT count(*) FROM {changes} w WHERE {leaves}")[0])

    def fill_in(self) -> None:
        """Give changes what they left alone: of the change of the key before it that
        tells it, else of the row that is there.
        """
        alone = self._connection.execute(
            self._query("SELECT DISTINCT unnest({unavailable}) FROM {words} w WHERE {leaves}"), ()
        ).fetchall()
        if not alone:
            return
        self.tally.kept = int(self._one("SELECT count(*) FROM {words} w WHERE {leaves}")[0])
        told = (
            "(SELECT DISTINCT ON ({key}) * FROM {changes} WHERE ({name} = ANY({unavailable})) IS"
            " NOT TRUE ORDER BY {order})"
        )
        for (name,) in alone:
            for others in (
                self._place.table,
                self._query(told, order=self._last_first, name=_literal(name)),
            ):
                self._run(
                    "UPDATE {words} w SET {column} = t.{column} FROM {others} t WHERE {same} AND"
                    " {name} = ANY(w.{unavailable})",
                    others=others,
                    name=_literal(name),
                    column=identifier(name),
                )
        number = self._nth_name
        schema = pa.schema(
            [*(f for f in self._changes if f.name != HASH.name), pa.field(number, pa.int64())]
        )
        numbers: list[int] = []
        hashes: list[int] = []
        for batch in rows(
            self._connection, self._place, schema, self._query("w WHERE {leaves}"), (), of=_WORDS
        ):
            numbers += batch[number].to_pylist()
            hashes += self._form.hashes(batch.drop_columns([number])).view(np.int64).tolist()
        self._connection.execute(
            self._query(
                "UPDATE {words} w SET {hash} = v.hash FROM unnest(%s::bigint[], %s::bigint[]) AS v"
                " (nth, hash) WHERE w.{nth} = v.nth"
            ),
            (numbers, hashes),
        )

    def unknown(self) -> int:
        """On how many keys the window had the last word, of which nothing stands of the
        new attempt.
        """
        asked = (
            "SELECT count(*) FROM {others} t WHERE t.{window} = %s AND NOT EXISTS (SELECT FROM"
            " {words} w WHERE {same})"
        )
        return sum(int(self._one(asked, self._key, others=others)[0]) for others in self._others())

    def write(self) -> None:
        """Put the words that stand in the place of what was there.

        Raises:
            RefusedError: a trigger, or somebody else, keeps rows out or in.
        """
        tally, names = self.tally, [identifier(name) for name in self._columns.names]
        tally.rows_removed, tally.removed = self._counted(
            "{table} t JOIN {words} w ON {same}", of="t"
        )
        tally.rows_added, tally.added = self._counted("{words} w WHERE {stays}", of="w")
        if self._form.buries:
            self._run("DELETE FROM {table} t USING {words} w WHERE {same} AND w.{deleted}")
            if self._one(
                "SELECT count(*) FROM {table} t JOIN {words} w ON {same} WHERE w.{deleted}"
            )[0]:
                raise rows_stay(self._place)
            self._bury()
        others = [
            identifier(name) for name in self._columns.names if name not in self._form.key.columns
        ]
        taken = self._run(
            "INSERT INTO {table} AS t ({names}) SELECT {names} FROM {words} w WHERE {stays} ON"
            " CONFLICT ({key}) DO UPDATE SET {put}",
            names=sql.SQL(", ").join(names),
            put=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in others),
        )
        if taken != tally.rows_added:
            what = (
                f"{self._place} took {taken} of {tally.rows_added} merged rows: a trigger of the"
                " table keeps rows out"
            )
            raise RefusedError(
                what, "commit", "Nothing was committed. Take it off, then run the window again."
            )

    def _bury(self) -> None:
        """Have a tombstone for each key that is taken out, and none for one that a row came for."""
        buried = self.buried
        buried.rows_removed, buried.removed = self._counted(
            "{tombstones} t JOIN {words} w ON {same}", of="t"
        )
        buried.rows_added, buried.added = self._counted("{words} w WHERE w.{deleted}", of="w")
        self._run("DELETE FROM {tombstones} t USING {words} w WHERE {same}")
        self._run(
            "INSERT INTO {tombstones} ({tombstone})"
            " SELECT {tombstone} FROM {words} w WHERE w.{deleted}",
            tombstone=sql.SQL(", ").join(map(identifier, [*self._form.tombstone, HASH.name])),
        )

    # ----------------------------------------------------------------------------------------------

    def _others(self) -> list[sql.Composable]:
        """Where words lie that were committed."""
        return [
            self._place.table,
            *(
                [identifier(self._tombstones.schema, self._tombstones.table)]
                if self._form.buries
                else []
            ),
        ]

    def _wins(self) -> sql.Composable:
        """Whether the change `w` takes the place of the word `t`, which has its key;
        may be null, for no.
        """
        after = sql.SQL('t.{} COLLATE "C" <= {} COLLATE "C"').format(
            identifier(self._form.window), _literal(self._key)
        )
        if self._dead_replay:
            lies = sql.SQL('({0}.{1} COLLATE "C", {0}.{2}, {0}.{3})')
            mine, there = (
                lies.format(sql.SQL(side), *map(identifier, self._form.place)) for side in "wt"
            )
            own = sql.SQL("t.{} = {}").format(identifier(self._form.window), _literal(self._key))
            after = sql.SQL("{} AND (NOT {} OR {} > {})").format(after, own, mine, there)
        if self._form.key.version is None:
            return after
        new, old = (
            sql.SQL("{}.{}").format(sql.SQL(side), identifier(self._form.key.version))
            for side in "wt"
        )
        higher = (
            "{new} > {old} OR ({new} IS NOT NULL AND {old} IS NULL) OR ({new} IS NOT DISTINCT FROM"
            " {old} AND {after})"
        )
        return sql.SQL(higher).format(new=new, old=old, after=after)

    @property
    def _nth_name(self) -> str:
        """The column of a change's number, by a name that no other has."""
        name = "nth"
        while name in self._columns.names:
            name += "_"
        return name

    @property
    def _nth(self) -> sql.Composable:
        return identifier(self._nth_name)

    def _query(self, text: str, **names: sql.Composable) -> sql.Composed:
        key = [identifier(name) for name in self._form.key.columns]
        stays = (
            sql.SQL("true")
            if self._form.key.marks
            else sql.SQL("NOT w.{}").format(identifier(DELETED))
        )
        return self._place.query(
            text,
            changes=_CHANGES,
            words=_WORDS,
            tombstones=identifier(self._tombstones.schema, self._tombstones.table),
            key=sql.SQL(", ").join(key),
            same=sql.SQL(" AND ").join(sql.SQL("t.{0} = w.{0}").format(name) for name in key),
            stays=stays,
            deleted=identifier(DELETED),
            unavailable=identifier(UNAVAILABLE.name),
            leaves=sql.SQL("cardinality(w.{}) > 0").format(identifier(UNAVAILABLE.name)),
            hash=identifier(HASH.name),
            window=identifier(self._form.window),
            nth=self._nth,
            **names,
        )

    def _run(self, text: str, **names: sql.Composable) -> int:
        return self._connection.execute(self._query(text, **names), ()).rowcount

    def _one(self, text: str, *values: object, **names: sql.Composable) -> tuple[Any, ...]:
        row = self._connection.execute(self._query(text, **names), values).fetchone()
        return row or (0, 0)

    def _counted(self, rows_of: str, of: str) -> tuple[int, int]:
        """How many rows these are, and the sum of their hashes."""
        rows, hashes = self._one(
            f"SELECT count(*), coalesce(sum({of}.{{hash}}), 0) FROM {rows_of}"  # noqa: S608
        )  # no values are in it
        return int(rows), int(hashes)


def _literal(text: str) -> sql.Composable:
    """A text in SQL that is run with values: there a percent sign would begin a placeholder."""
    return sql.Literal(text.replace("%", "%%"))
