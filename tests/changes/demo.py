"""`make demo CHANGES=1`: the commands of docs/debezium-to-iceberg.md on a database's changes.

A database in SQLite is changed for a day. Its changes go through a broker and a registry on
loopback into an Iceberg table. At the end the table must have the database's rows, read by
PyIceberg.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from tests.changes.database import PARTITIONS, TOPIC, Database, Row
from tests.clock import clock_ahead
from tests.kafka.produce import create_topic, produce
from tests.registry.server import RegistryServer
from tests.shape.readme import ROOT, blocks, section
from windrow.assets.demo.place import last_full_day
from windrow.ingest.admin.maintain import maintain_tables
from windrow.ingest.assemble import open_ledger, open_table
from windrow.ingest.config.load import load_spec
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

PAGE = (ROOT / "docs" / "debezium-to-iceberg.md").read_text(encoding="utf-8")
BROKER, REGISTRY = "127.0.0.1:9092", "http://127.0.0.1:8081"
"""The addresses on the page."""

NIGHTS = timedelta(days=8)
"""The time after the day at which the table is maintained."""

_SECONDS = 900


class Demo:
    """The demo's folder, broker, registry and database.

    Attributes:
        database: the database.

    Args:
        folder: is emptied.
        changes: the number of changes of the day, after a quarter as many rows of the snapshot.
    """

    def __init__(self, folder: Path, changes: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder, self._changes = folder, changes
        self._rng = random.Random(11)
        self._registry = RegistryServer()
        start = last_full_day(datetime.now(UTC))
        self.database = Database(self._registry, int(start.timestamp() * 1000))
        self._sent = 0

    def run(self) -> list[str]:
        """Does what the page says; returns the rows that are wrong, in words."""
        broker = EmbeddedBroker(self._folder / "kafka", find_jars())
        with self._registry, broker:
            self._addresses = {BROKER: broker.bootstrap, REGISTRY: self._registry.url}
            create_topic(broker.bootstrap, PARTITIONS, name=TOPIC)
            self._fill(self._changes // 4)
            self.database.snapshot()
            self._change(self._changes // 2)
            self._produce(broker.bootstrap)
            self._type("The pipeline's files")
            (spec,) = blocks("yaml", section("The pipeline's files", PAGE))
            self._spec.write_text(self._with_addresses(spec))
            self._type("The first run")
            mistakes = self.compare("at noon")
            self.database.add_column("email", "TEXT")
            self._change(self._changes - self._changes // 2)
            self._produce(broker.bootstrap)
            self._type("A column that is new in the database", self._add_column)
            self._type("Each night")
            self._maintain_later()
            self._type("Whether it is right")
        return mistakes + self.compare("in the evening")

    @property
    def _spec(self) -> Path:
        return self._folder / "customers" / "defs.yaml"

    def _fill(self, rows: int) -> None:
        """Inserts rows before the connector begins."""
        for key in range(rows):
            self.database.insert(id=key, **self._customer())
        self.database.changes.clear()

    def _change(self, changes: int) -> None:
        """Writes to the database for half a day: updates, inserts, deletions, other keys."""
        database, rng = self.database, self._rng
        keys = [row["id"] for row in database.rows()]
        fresh = max(keys) + 1
        for _ in range(changes):
            database.now += 12 * 3_600_000 // changes
            draw, position = rng.random(), rng.randrange(len(keys))
            if draw < 0.2:
                database.insert(id=fresh, **self._customer())
                keys.append(fresh)
                fresh += 1
            elif draw < 0.3:
                database.delete(keys.pop(position))
            elif draw < 0.32:
                database.update(keys[position], id=fresh)
                keys[position] = fresh
                fresh += 1
            else:
                database.update(keys[position], **self._customer())

    def _customer(self) -> dict[str, Any]:
        rng = self._rng
        values = {
            "name": rng.choice(("Ana", "Chen", "Esi", "Grün", "Hana")),
            "city": rng.choice(("Kraków", "Lyon", "Xi'an", None)),
            "born": rng.choice((None, date(1950, 1, 1) + timedelta(days=rng.randrange(20_000)))),
            "credit": Decimal(rng.randrange(-1_000_000, 1_000_000)).scaleb(-2),
            "email": rng.choice(("a@shop.example", "b@shop.example", None)),
        }
        return {name: values[name] for name in self.database.types() if name in values}

    def _produce(self, bootstrap: str) -> None:
        changes = self.database.changes
        produce(bootstrap, TOPIC, changes[self._sent :])
        count, self._sent = len(changes) - self._sent, len(changes)
        print(f"{count:,} messages of the database's changes are in {TOPIC}", flush=True)

    def _add_column(self) -> None:
        """Adds the page's column to the model, which ends with its columns."""
        (line,) = blocks("python", section("A column that is new in the database", PAGE))
        with self._spec.with_name("schema.py").open("a") as schema:
            schema.write(line)

    def _type(self, heading: str, between: Callable[[], None] | None = None) -> None:
        """Types the commands of a section of the page, and does something after the first."""
        for block in blocks("sh", section(heading, PAGE)):
            for command in block.splitlines():
                print(f"$ {command}", flush=True)
                program, *arguments = shlex.split(self._with_addresses(command))
                program = str(Path(sys.executable).parent / program)
                with (self._folder / "run.log").open("ab") as log:
                    subprocess.run(
                        [program, *arguments],
                        cwd=self._folder,
                        env=os.environ | {"COLUMNS": "140"},
                        stderr=log,
                        check=True,
                        timeout=_SECONDS,
                    )
            if between is not None:
                between()
            between = None

    def _with_addresses(self, text: str) -> str:
        for address, actual in self._addresses.items():
            text = text.replace(address, actual)
        return text

    def _maintain_later(self) -> None:
        """Maintains the table as in the night a week later, when older snapshots expire."""
        spec = load_spec(self._spec)
        tables = open_table(spec)
        with clock_ahead(NIGHTS):
            maintained = maintain_tables(spec, tables, lambda: open_ledger(spec), dry_run=False)
        print(
            f"A week later: {maintained.expired_versions} snapshots expired,"
            f" {len(maintained.removed_files)} files removed.",
            flush=True,
        )

    def compare(self, daytime: str) -> list[str]:
        """Compares the table's rows with the database's; returns the differences in words."""
        expected, actual = self.database.rows(), self._read(list(self.database.types()))
        if expected == actual:
            count = f"{len(expected):,}"
            print(f"The table has the {count} rows of the database {daytime}, and no other.")
            return []
        differing = [row["id"] for row in expected if row not in actual]
        differing += [row["id"] for row in actual if row not in expected]
        return [f"{len(differing)} rows differ {daytime}, the first: {differing[:5]}"]

    def _read(self, columns: list[str]) -> list[Row]:
        """Reads the table's rows by PyIceberg, in the order of their keys."""
        lake = self._spec.parent / "lake"
        with closing(SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db")) as catalog:
            rows = catalog.load_table("shop.customers").scan(selected_fields=tuple(columns))
            read: list[Row] = rows.to_arrow().select(columns).sort_by("id").to_pylist()
        return read


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=8000)
    parser.add_argument("--folder", type=Path, default=ROOT / ".windrow" / "changes")
    arguments = parser.parse_args()
    mistakes = Demo(arguments.folder.resolve(), arguments.changes).run()
    sys.exit("\n".join(mistakes))


if __name__ == "__main__":
    main()
