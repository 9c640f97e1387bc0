"""Opens catalogs, loads tables, and makes errors without secrets from PyIceberg's errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationError as AnswerError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    ValidationError,
)
from pyiceberg.table import Table
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from windrow.ingest.errors import SpecError, UnreachableError, WindrowError
from windrow.ingest.settings.paths import secret_part, without_secrets
from windrow.ingest.settings.secrets import masked
from windrow.ingest.sinks.iceberg.catalog_table import DATABASE, CatalogTable, reveal_secrets
from windrow.ingest.sinks.iceberg.pyiceberg_internals import (
    DatabaseCatalog,
    LimitedRestCatalog,
    guard_from_code,
)
from windrow.ingest.sinks.kit import STORE_WAITS, retry, waiting_for

_FILE_IO = "windrow.ingest.sinks.iceberg.file_io.SyncedFileIO"
_PUBLIC = frozenset({"type", "warehouse", "py-io-impl", "name"})
"""Properties whose values may be in an error. Any other property may be a secret."""

_ODD_ANSWERS = (JSONDecodeError, AnswerError)
"""Errors about answers of a failing server, or of a proxy between it and windrow.

By their classes they look like wrong settings.
"""

_WRONG_SETTINGS = (
    NoSuchPropertyException,
    NotInstalledError,
    ValidationError,
    ArgumentError,
    NoSuchModuleError,
    ValueError,
    TypeError,
)


def catalog_is_missing(catalog_table: CatalogTable) -> bool:
    """Returns whether the folder has no catalog yet. Opening the catalog would create it."""
    return bool(catalog_table.warehouse) and not Path(catalog_table.warehouse, DATABASE).exists()


def open_catalog(catalog_table: CatalogTable) -> Catalog:
    """Opens the catalog, once for each process, because a connection doesn't survive a fork.

    Raises:
        SpecError: its properties are wrong, a secret isn't where its reference says, or a
            package isn't installed.
        UnreachableError: the catalog doesn't answer.
    """
    return _open_catalog(
        catalog_table.catalog, tuple(reveal_secrets(catalog_table.properties).items()), os.getpid()
    )


def load(catalog_table: CatalogTable) -> Table | None:
    """Loads the table as it is now; None if it doesn't exist.

    Raises:
        SpecError: as `open_catalog`.
        UnreachableError: as `open_catalog`; or the table can't be read.
    """
    if catalog_is_missing(catalog_table):
        return None
    try:
        catalog = open_catalog(catalog_table)
        with waiting_for(f"the Iceberg catalog of {catalog_table.location}"):
            return catalog.load_table(catalog_table.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except WindrowError:
        raise
    except Exception as error:  # its text may repeat a request  # noqa: BLE001
        raise UnreachableError(
            f"the table {catalog_table.location} can't be read: {reason(catalog_table, error)}",
            "setup",
            "Check the catalog, the table's storage and the rights, then run again.",
        ) from None


def make_namespace(catalog_table: CatalogTable) -> None:
    """Creates the table's namespace unless it exists. Calls may race."""
    if catalog_table.warehouse:
        Path(catalog_table.warehouse).mkdir(parents=True, exist_ok=True)
    catalog = open_catalog(catalog_table)
    try:
        if not catalog.namespace_exists(catalog_table.namespace):
            catalog.create_namespace(catalog_table.namespace)
    except Exception:
        # Another call may have created it first. Databases have many errors for that.
        if not catalog.namespace_exists(catalog_table.namespace):
            raise


def reason(catalog_table: CatalogTable, error: BaseException) -> str:
    """Returns the first line of an error, without the secrets that drivers quote."""
    return _reason(error, reveal_secrets(catalog_table.properties))


def _reason(error: BaseException, properties: Mapping[str, str]) -> str:
    text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    for name, value in sorted(properties.items(), key=lambda item: -len(item[1])):
        if name not in _PUBLIC and len(value) > 1:
            shown = without_secrets(value) if name == "uri" and secret_part(value) else f"<{name}>"
            text = masked(text, [value], shown)
            # a server repeats the password alone
            of_uri = unquote(value.partition("://")[2].rpartition("@")[0])
            user = {"credential": value, "uri": of_uri}.get(name, "")
            text = masked(text, [user.partition(":")[2]])
    return text[:300]


@lru_cache(maxsize=16)
def _open_catalog(name: str, properties: tuple[tuple[str, str], ...], _process: int) -> Catalog:
    """Opens a catalog. The cache has one catalog for each process and these properties."""
    values = dict(properties)
    where = without_secrets(values.get("uri", "")) or f"by the name {name}"

    def may_pass(error: Exception) -> bool:
        return isinstance(error, _ODD_ANSWERS) or not isinstance(error, _WRONG_SETTINGS)

    try:
        # If two processes create the catalog's own tables at once, one of them gets an error and
        # finds the tables at its next try.
        with waiting_for(f"the Iceberg catalog {where}"):
            catalog = retry(
                lambda: _load_catalog(name, {"py-io-impl": _FILE_IO, **values}),
                may_pass,
                STORE_WAITS,
            )
    except Exception as error:  # noqa: BLE001
        if not may_pass(error):
            raise SpecError(
                f"the Iceberg catalog {where} can't be opened: {_reason(error, values)}",
                "spec",
                "Fix sink.catalog: PyIceberg's page of catalogs lists their properties.",
            ) from None
        raise UnreachableError(
            f"the Iceberg catalog {where} can't be reached: {_reason(error, values)}",
            "setup",
            "Check that it answers, and the rights, then run again.",
        ) from None
    opened = _without_connection(catalog) if isinstance(catalog, SqlCatalog) else catalog
    guard_from_code(opened)
    return opened


def _load_catalog(name: str, properties: dict[str, str]) -> Catalog:
    """Loads a catalog as PyIceberg does, but a REST catalog with limits."""
    merged: Any = merge_config(Config().get_catalog_config(name) or {}, {**properties})
    uri = str(merged.get("uri", ""))
    kind = str(merged.get("type") or ("rest" if uri.startswith("http") else "")).lower()
    is_rest = uri and kind == "rest" and "py-catalog-impl" not in properties
    return LimitedRestCatalog(name, **merged) if is_rest else load_catalog(name, **properties)


def _without_connection(database: SqlCatalog) -> DatabaseCatalog:
    """Replaces a catalog in a database by one that keeps no connection open."""
    database.close()
    return DatabaseCatalog(
        database.name, **{name: str(value) for name, value in database.properties.items()}
    )
