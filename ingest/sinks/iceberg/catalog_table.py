"""A table by its catalog and its name in it. Opens nothing, and loads no PyIceberg."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.places import without_secrets
from windrow.ingest.settings.secrets import FORMS
from windrow.ingest.sinks.iceberg.secrets import Property, is_secret

DATABASE = "catalog.db"
"""The catalog of a warehouse that has no other one: a SQLite file in its folder, by the
name `default`.
"""

_NAMES_THE_TABLE = frozenset({"name", "type", "uri", "warehouse"})
"""Properties that `CatalogTable.place` is made of, which is kept for ever."""


class CatalogTable(msgspec.Struct, frozen=True):
    """A table's name in its catalog (`namespace.table`), and the properties of that catalog.

    `warehouse`: the folder of a table with a catalog of its own; else empty.
    """

    table: str
    catalog: str
    properties: tuple[tuple[str, Property], ...]
    warehouse: str = ""

    @classmethod
    def in_folder(cls, warehouse: str, table: str) -> CatalogTable:
        """In a folder with a catalog of its own.

        Raises:
            SpecError: no table can lie there.
        """
        if any(mark in warehouse for mark in "%?#"):
            what = f"sink.warehouse is {warehouse}, with a %, ? or # in it"
            raise SpecError(
                what,
                "spec",
                "Readers of Iceberg would look elsewhere: give it a path without them.",
            )
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{warehouse}/{DATABASE}",
            "warehouse": f"file://{warehouse}",
        }
        return cls(table, "default", tuple(sorted(properties.items())), warehouse)

    @classmethod
    def in_catalog(cls, table: str, properties: Mapping[str, Property]) -> CatalogTable:
        """In a catalog that PyIceberg knows by these properties, or by its own configuration.

        Raises:
            SpecError: a secret of the storage is written out; or a property that names the
                table is a reference.
        """
        own = {name: value for name, value in properties.items() if name != "name"}
        for name, value in sorted(properties.items()):
            if isinstance(value, str) and is_secret(name, value):
                what = f"sink.catalog.{name} is written out, and it is a secret that tasks need"
                raise SpecError(
                    what, "spec", f"Write {FORMS}: each process reads it there for itself."
                )
            if not isinstance(value, str) and name in _NAMES_THE_TABLE:
                what = (
                    f"sink.catalog.{name} is a reference, and it is part of what the table is"
                    " called"
                )
                raise SpecError(what, "spec", "Write its value; it may hold a template.")
        catalog = properties.get("name", "default")
        assert isinstance(catalog, str)
        return cls(table, catalog, tuple(sorted(own.items(), key=_name)))

    @property
    def place(self) -> str:
        """The table's name in errors and in plans, which never changes and holds no secret."""
        said = {name: value for name, value in self.properties if isinstance(value, str)}
        if self.warehouse:
            return f"{self.warehouse}:{self.table}"
        where = without_secrets(said["uri"]) if "uri" in said else said.get("type", "pyiceberg")
        inside = said.get("warehouse", "") if said.get("type", "rest") == "rest" else ""
        return "/".join(
            filter(
                None, (where.rstrip("/"), without_secrets(inside), f"{self.catalog}:{self.table}")
            )
        )

    @property
    def namespace(self) -> str:
        """The part of the name before the table's own."""
        return self.table.rpartition(".")[0]

    def dead(self) -> CatalogTable:
        """The table of its dead letters."""
        return msgspec.structs.replace(self, table=f"{self.table}_dead")

    def is_same(self, other: str) -> bool:
        """Whether a place is this one, perhaps by a link to its folder."""
        if other == self.place:
            return True
        folder, _, table = other.rpartition(":")
        return (
            bool(self.warehouse)
            and table == self.table
            and os.path.realpath(folder) == os.path.realpath(self.warehouse)
        )


def _name(item: tuple[str, Property]) -> str:
    return item[0]
