"""Digests of a pipeline's settings, and what isn't part of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.config.test_logins import SPEC
from tests.docs.settings import settings
from windrow.assets.description import code_version
from windrow.ingest.config.load import parse_spec
from windrow.ingest.runner.due import schema_digest
from windrow.ingest.schema.columns import Columns
from windrow.ingest.settings.secrets import Secret

Sections = dict[str, Any]

SOURCE = {"topic": "shop.orders", "bootstrap_servers": "one:9092"}
KAFKA = {"kind": "kafka", "topic": "out", "staging": "s", "bootstrap_servers": "two:9092"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
POSTGRES = {"kind": "postgres", "url": "postgresql://me@db/x", "table": "t", "staging": "s"}
HTTP = {"http": "https://service/{id}", "schema": "my.schemas:Answer"}


def _registry_of_source(**registry: object) -> Sections:
    source = {**SOURCE, "registry": {"url": "https://registry", **registry}}
    return {"source": source, "decode": {"schema": "my.schemas:Order", "format": "avro-confluent"}}


def _registry_of_sink(**registry: object) -> Sections:
    registry = {"url": "https://registry", **registry}
    return {"sink": {**KAFKA, "value": {"format": "avro-confluent"}, "registry": registry}}


def _lookup(**source: object) -> Sections:
    step = {"lookup": "a", "key": {"id": "id"}, "take": {"x": "x"}, "from": source}
    return {"transform": {"schema": "my.schemas:Row", "steps": [step]}}


SPECS: dict[str, Callable[[object], Sections]] = {
    "state_password": lambda r: {"state": "postgresql://me@db/x", "state_password": r},
    "source.client": lambda r: {"source": {**SOURCE, "client": {**SASL, "sasl.password": r}}},
    "source.registry.password": lambda r: _registry_of_source(username="me", password=r),
    "source.registry.token": lambda r: _registry_of_source(token=r),
    "source.registry.key_password": lambda r: _registry_of_source(
        certificate="client.pem", key_password=r
    ),
    "transform.steps.from.catalog": lambda r: _lookup(
        table="a.b", catalog={"uri": "https://catalog", "token": r}
    ),
    "transform.steps.from.password": lambda r: _lookup(
        sql="postgresql://me@db/x", relation="t", password=r
    ),
    "transform.steps.from.headers": lambda r: _lookup(**HTTP, headers={"x-api-key": r}),
    "transform.steps.from.token": lambda r: _lookup(**HTTP, token=r),
    "transform.steps.from.tls.key_password": lambda r: _lookup(
        **HTTP, tls={"certificate": "client.pem", "key_password": r}
    ),
    "sink.password": lambda r: {"sink": {**POSTGRES, "password": r}},
    "sink.catalog": lambda r: {
        "sink": {"kind": "iceberg", "table": "a.b", "catalog": {"uri": "https://c", "token": r}}
    },
    "sink.client": lambda r: {"sink": {**KAFKA, "client": {**SASL, "sasl.password": r}}},
    "sink.registry.password": lambda r: _registry_of_sink(username="me", password=r),
    "sink.registry.token": lambda r: _registry_of_sink(token=r),
    "sink.registry.key_password": lambda r: _registry_of_sink(
        certificate="client.pem", key_password=r
    ),
    "dead_letters.client": lambda r: {
        "dead_letters": {
            "topic": "dead",
            "bootstrap_servers": "two:9092",
            "client": {**SASL, "sasl.password": r},
        }
    },
}
"""For each setting that takes a reference, the sections of a spec with one."""


def _takes_reference(annotation: object) -> bool:
    return annotation in get_args(Secret) or any(map(_takes_reference, get_args(annotation)))


@pytest.mark.parametrize(
    "name", [name for name, field in settings().items() if _takes_reference(field.annotation)]
)
def test_references_to_secrets_are_no_part_of_digests_and_names(name: str, tmp_path: Path) -> None:
    """Rows stay fresh, refusals stay valid and tables keep their names with another reference."""

    def outcome(reference: object) -> tuple[str, ...]:
        sections = SPECS[name](reference)
        spec = parse_spec({**SPEC, "source": SOURCE, **sections}, tmp_path)
        steps = () if spec.transform is None else spec.transform.steps
        lookups = [step.from_.source(tmp_path).identity for step in steps]  # type: ignore[attr-defined]
        return code_version(spec, Columns(())), schema_digest(spec), spec.sink_path(), *lookups

    assert outcome({"env": "PASSWORD"}) == outcome({"file": str(tmp_path / "password.py")})
