"""A kind of sink is one module and one line in the table of kinds: a third one keeps every promise, and a pipeline runs on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Stage, hour, stage
from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_audit_contract import SinkAuditContract
from tests.contracts.sink_checksums_contract import SinkChecksumsContract
from tests.contracts.sink_contract import SinkContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_metadata_contract import SinkMetadataContract
from tests.sinks.beside import WithDeadLetters
from tests.sinks.sqlite_sink import SqliteSink
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.sinks.delta.kind import dead_letters_beside
from windrow.ingest.sinks.kinds import KINDS

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


class SqliteBoth(WithDeadLetters, SqliteSink):
    """With dead letters in Delta's store: any sink may have any."""

    def __init__(self, file: str, rows: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        super().__init__(file, rows, metadata)
        self.dead_letters = dead_letters_beside(file)


@pytest.mark.some(1)
class TestSqliteSink(
    SinkContract, SinkAuditContract, SinkChecksumsContract, SinkGridsContract, SinkMetadataContract, DeadLettersContract
):  # fmt: skip
    """The contract suites, unchanged."""

    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> SqliteBoth:
        tmp_path.mkdir(exist_ok=True)
        return SqliteBoth(str(tmp_path / "orders.sqlite"), schema, metadata)

    def reopen(self, sink: SqliteBoth) -> SqliteBoth:
        return SqliteBoth(sink.file, sink.schema, sink.metadata)

    def pieces(self, sink: SqliteBoth) -> list[pa.Table]:
        return [piece for pieces in sink.kept_rows().values() for piece in pieces]

    @contextmanager
    def no_answer(self, sink: SqliteBoth) -> Iterator[None]:
        writing = sink.writing

        @contextmanager
        def unanswered() -> Iterator[sqlite3.Connection]:
            del sink.writing
            with writing() as database:
                yield database
            raise sqlite3.OperationalError("disk I/O error")

        sink.writing = unanswered  # type: ignore[method-assign]
        yield


@pytest.fixture
def third(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A pipeline whose spec names the third kind: one line in the table of kinds, and nothing else."""
    monkeypatch.setitem(KINDS, "sqlite", "tests.sinks.sqlite_sink:SQLITE")
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("sink: {path: lake/things}", "sink: {kind: sqlite, file: things.sqlite}"))
    return stage


def test_a_pipeline_runs_on_it(third: Stage) -> None:
    """From its spec: run, replay, show, dead letters, verify with everything read back, doctor and sweep, by the command as it is."""
    assert third.json("run", third.spec, "--window", hour(0))["windows"][0]["committed"]["receipt"]["counts"]["valid"] == 4
    assert third.json("run", third.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    third.json("replay", third.spec, "--window", hour(0))
    (shown,) = third.json("show", third.spec)["windows"]
    assert shown["receipt"]["generation"] == 1
    assert [letter["reason"] for letter in third.json("dead", "show", third.spec)["dead"]] == ["not_json"]
    assert third.json("verify", third.spec, "--deep")["findings"] == []
    assert third.json("sweep", third.spec)["files"] == []
    assert next(c for c in third.json("doctor", third.spec, code=0)["checks"] if c["name"] == "sink")["level"] == "ok"


def test_its_mistakes_are_told_like_any_other(third: Stage) -> None:
    """An option that it doesn't have is named with its line and the one that was meant; another kind's options are not its own."""
    spec = Path(third.spec)
    spec.write_text(spec.read_text().replace("file:", "fiel:"))
    said = third.json("show", third.spec, code=2)["error"]["message"]
    assert "line 6: sink.fiel: unknown key; did you mean file?" in said
    assert "line 6: sink.file: is missing" in said
    spec.write_text(spec.read_text().replace("fiel: things.sqlite", "file: things.sqlite, path: lake"))
    assert "line 6: sink.path: unknown key; known are kind, file" in third.json("show", third.spec, code=2)["error"]["message"]
