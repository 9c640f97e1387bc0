"""From real Kafka, by Spark, into files and into an object store, by the command."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.integration.format_cases import CASES, HOUR, make_user
from tests.integration.user import User
from tests.registry.server import RegistryServer
from tests.s3.server import S3Server
from windrow.ingest.sinks.files.reader import list_files

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def with_sink(user: User, section: str) -> User:
    """Returns the user, with another sink in the spec."""
    spec = user.folder / "things.yaml"
    spec.write_text(
        spec.read_text().replace("sink: {kind: delta, path: ./things}", f"sink: {section}")
    )
    return user


@pytest.mark.some(1)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("written", ["parquet", "jsonl", "csv"])
def test_from_a_topic_to_files(
    written: str, kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """Each message is in the listed files or is a dead letter, also after a replay.

    `verify --deep` finds nothing.
    """
    case = CASES["json"]
    user = with_sink(
        make_user(case, kafka, tmp_path, schema_registry),
        f"{{kind: files, path: ./things, format: {written}}}",
    )
    user.types("run", "--window", HOUR)
    user.types("replay", "--window", HOUR)
    source = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[written]
    (count,) = duckdb.sql(
        f"SELECT count(*) FROM {source}({list_files(str(tmp_path / 'things'))})"
    ).fetchall()[0]
    assert count == len(case.rows)
    assert (
        sorted((d["stage"], d["reason"]) for d in user.types("dead", "show")["dead"]) == case.dead
    )
    assert user.types("verify", "--deep")["findings"] == []


@pytest.mark.long
@pytest.mark.parametrize("section", ["kind: files, format: jsonl", "kind: delta"])
def test_into_an_object_store(
    section: str, s3: S3Server, kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """The sink works on an object store.

    Spark's workers find the store by the environment. A lost answer to the commit changes
    nothing. No secret is printed.
    """
    case = CASES["json"]
    user = with_sink(
        make_user(case, kafka, tmp_path, schema_registry),
        f"{{{section}, path: '{s3.bucket()}/things'}}",
    )
    fault = s3.fail(
        "lost", "PUT", "/things/_windrow/log/" if "files" in section else "/things/_delta_log/"
    )
    ran = user.starts_and_ends("run", "--window", HOUR)
    assert fault.hit == 1
    assert ran["windows"][0]["committed"]["receipt"]["counts"]["valid"] == len(case.rows)
    verified = user.types("verify", "--deep")
    assert verified["findings"] == []
    assert (
        s3.secret
        not in f"{ran}{verified}{[p.read_bytes() for p in tmp_path.rglob('*') if p.is_file()]}"
    )
