"""A small REST catalog on loopback, over a catalog in SQLite. A test says when it fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask, Response, abort, request
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from werkzeug.serving import make_server

from windrow.ingest.sinks.iceberg.catalogs import DatabaseCatalog

TOKEN = "hunter2-token"


class Server:
    """A catalog and the faults of its next commits.

    Attributes:
        faults: a fault for each of the next commits: whether the commit is taken, and the
            status of the answer.
        config: properties that the catalog gives out with each table, such as storage
            credentials.
        settings: the answer to the first request, with the catalog's own properties.
        table_properties: properties that the answers add to a table's own.
    """

    def __init__(
        self, folder: Path, warehouse: str = "", config: Mapping[str, str] | None = None
    ) -> None:
        self.config = dict(config or {})
        self.settings: dict[str, Any] = {"defaults": {}, "overrides": {}}
        self.table_properties: dict[str, str] = {}
        catalog_config = {
            "uri": f"sqlite:///{folder}/rest.db",
            "warehouse": warehouse or f"file://{folder}",
        }
        self.catalog = DatabaseCatalog("default", **catalog_config, **self.config)
        self.faults: list[tuple[bool, int]] = []
        self.commits = 0

    def app(self) -> Flask:
        """Returns an application with the routes that PyIceberg requests."""
        app = Flask("rest")
        app.before_request(
            lambda: (
                None if request.headers.get("Authorization") == f"Bearer {TOKEN}" else abort(401)
            )
        )
        table_route = "/v1/namespaces/<name>/tables/<table>"
        for path, method, handler in (
            ("/v1/config", "GET", lambda: self.settings),
            ("/v1/namespaces/<name>", "GET", self.namespace),
            ("/v1/namespaces", "POST", self.make_namespace),
            ("/v1/namespaces/<name>/tables", "POST", self.create),
            (
                table_route,
                "GET",
                lambda name, table: self.loaded(self.catalog.load_table(f"{name}.{table}")),
            ),
            (table_route, "POST", self.commit),
        ):
            app.add_url_rule(path, f"{method} {path}", handler, methods=[method])
        for error in (NoSuchTableError, NoSuchNamespaceError):
            app.register_error_handler(error, lambda e: error_response(404, type(e).__name__))
        for error in (TableAlreadyExistsError, CommitFailedException):
            app.register_error_handler(error, lambda e: error_response(409, type(e).__name__))
        return app

    def namespace(self, name: str) -> Any:
        return {"namespace": [name], "properties": self.catalog.load_namespace_properties(name)}

    def make_namespace(self) -> Any:
        (name,) = request.json["namespace"]
        self.catalog.create_namespace(name)
        return {"namespace": [name], "properties": {}}

    def create(self, name: str) -> Any:
        body = request.json
        spec = PartitionSpec.model_validate(body["partition-spec"])
        schema = Schema.model_validate(body["schema"])
        return self.loaded(
            self.catalog.create_table(
                f"{name}.{body['name']}", schema, partition_spec=spec, properties=body["properties"]
            )
        )

    def commit(self, name: str, table: str) -> Any:
        commit_request = CommitTableRequest.model_validate_json(request.data)
        self.commits += 1
        arrives, status = self.faults.pop(0) if self.faults else (True, 200)
        if arrives:
            stored_table = self.catalog.load_table(f"{name}.{table}")
            stored_table._do_commit(  # noqa: SLF001
                updates=commit_request.updates, requirements=commit_request.requirements
            )
            if status == 200:
                return self.loaded(stored_table)
        return error_response(status, "InternalServerError")

    def loaded(self, table: Table) -> Any:
        """Returns a table as the protocol writes it."""
        properties = {**table.metadata.properties, **self.table_properties}
        metadata = table.metadata.model_copy(update={"properties": properties})
        about, config = metadata.model_dump_json(), json.dumps(self.config)
        content = (
            f'{{"metadata-location": "{table.metadata_location}", "metadata": {about}, "config":'
            f" {config}}}"
        )
        return Response(content, mimetype="application/json")


def error_response(status: int, kind: str) -> Any:
    """Returns an error as the protocol writes it."""
    return {"error": {"message": f"said {kind}", "type": kind, "code": status}}, status


@contextmanager
def serving(
    folder: Path, warehouse: str = "", config: Mapping[str, str] | None = None
) -> Iterator[tuple[Server, str]]:
    """Yields the running server and its address."""
    server = Server(folder, warehouse, config)
    with listening(server.app()) as url:
        yield server, url


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serves an application on loopback, and yields its address."""
    http_server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http_server.server_port}"
    finally:
        http_server.shutdown()
        thread.join(30)
        http_server.server_close()
