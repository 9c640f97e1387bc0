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
"""The SQLite file in a warehouse's folder that is its own catalog, named `default`."""

_NAMES_THE_TABLE = frozenset({"name", "type", "uri", "warehouse"})
"""Properties in `CatalogTable.place`, which never changes."""


class CatalogTable(msgspec.Struct, frozen=True):
    """A table's name in its catalog (`namespace.table`), and the properties of that catalog.

    `warehouse` is the folder of a table whose folder has a catalog of its own; else empty.
    """

    table: str
    catalog: str
    properties: tuple[tuple[str, Property], ...]
    warehouse: str = ""

    @classmethod
    def in_folder(cls, warehouse: str, table: str) -> CatalogTable:
        """A table in a folder with a catalog of its own.

        Raises:
            SpecError: no table can be in this folder.
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
        """A table in a catalog, by these properties or by PyIceberg's own configuration.

        Raises:
            SpecError: a secret of the storage is written out; or a property in the table's
                name is a reference.
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
        """The table's name in errors and in plans; it never changes and has no secret."""
        written = {name: value for name, value in self.properties if isinstance(value, str)}
        if self.warehouse:
            return f"{self.warehouse}:{self.table}"
        where = (
            without_secrets(written["uri"])
            if "uri" in written
            else written.get("type", "pyiceberg")
        )
        inside = written.get("warehouse", "") if written.get("type", "rest") == "rest" else ""
        return "/".join(
            filter(
                None, (where.rstrip("/"), without_secrets(inside), f"{self.catalog}:{self.table}")
            )
        )

    @property
    def namespace(self) -> str:
        """The namespace, which is the name without its last part."""
        return self.table.rpartition(".")[0]

    def dead(self) -> CatalogTable:
        """The table of its dead letters."""
        return msgspec.structs.replace(self, table=f"{self.table}_dead")

    def is_same(self, other: str) -> bool:
        """Returns whether a place is this table's, also through a link to its folder."""
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
