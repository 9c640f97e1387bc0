"""Tables of which somebody has asked, since windrow made them, what windrow doesn't do:
told before a commit, and nothing is committed.

deltalake 1.6 holds rows against constraints where it writes them itself. A commit that
names files it lets through, whatever is in them, and with column mapping under names
that no reader looks for. Features that it doesn't know end its commit as a conflict
would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.sinks.things import ROWS, staged_receipt, window
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.errors import SchemaChangedError, UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey


def write(
    uri: str,
    properties: Mapping[str, str],
    amount: Mapping[str, object],
    features: tuple[str, ...] = (),
) -> None:
    """An entry, as another engine would write it: properties, what is said of the
    column `amount`, features of the protocol.
    """
    log = Path(uri) / "_delta_log"
    lines = [
        json.loads(line)
        for entry in sorted(log.glob("0*.json"), reverse=True)
        for line in entry.read_text().splitlines()
    ]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    next(field for field in schema["fields"] if field["name"] == "amount")["metadata"] |= amount
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": metadata["configuration"] | dict(properties),
    }
    asked: list[dict[str, Any]] = [{"metaData": metadata}]
    if features:
        asked.append(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}
        )
    entry = log / f"{DeltaTable(uri).version() + 1:020d}.json"
    entry.write_text("".join(json.dumps(line) + "\n" for line in asked))


def constrain(uri: str) -> None:
    """As a person does who wants no dear orders."""
    DeltaTable(uri).alter.add_constraint({"cheap": "amount < 8"})


ASKED: dict[str, Callable[[str], None]] = {
    "the check constraint cheap": constrain,
    "the column amount has an invariant": partial(
        write, properties={}, amount={"delta.invariants": '{"expression": "amount > 0"}'}
    ),
    "the column amount is generated": partial(
        write, properties={}, amount={"delta.generationExpression": "_offset * 2"}
    ),
    "the feature inCommitTimestamp": partial(
        write, properties={}, amount={}, features=("inCommitTimestamp",)
    ),
    "the feature rowTracking": partial(
        write, properties={}, amount={}, features=("domainMetadata", "rowTracking")
    ),
}


def test_deletion_vectors_of_another_client_are_told(tmp_path: Path) -> None:
    """Which rows are left nobody can tell without them: verification says so, and what
    takes them off.
    """
    sink = DeltaBoth(str(tmp_path / "t"), ROWS)
    sink.prepare()
    sink.commit(*staged_receipt(sink, 0, dead=False))
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    entry = tmp_path / "t/_delta_log" / f"{DeltaTable(sink.uri).version() + 1:020d}.json"
    entry.write_text(json.dumps({"protocol": protocol}) + "\n")
    for ask in (sink.audit().rows_held, lambda asked: list(sink.audit().contents(asked))):
        with pytest.raises(UnreachableError, match=r"deletionVectors.*DROP FEATURE"):
            ask(window(0))


def mapped(uri: str) -> None:
    """All columns have names of their own in files, one of them another one than in the table."""
    log = Path(uri) / "_delta_log"
    lines = [
        json.loads(line)
        for entry in sorted(log.glob("0*.json"))
        for line in entry.read_text().splitlines()
    ]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        name = "sum" if field["name"] == "amount" else field["name"]
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": name,
        }
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
    }
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": metadata["configuration"] | properties,
    }
    asked = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
    (log / f"{DeltaTable(uri).version() + 1:020d}.json").write_text(
        "".join(json.dumps(line) + "\n" for line in asked)
    )


ASKED["column mapping (delta.columnMapping.mode is name)"] = mapped


@pytest.fixture(params=["append", "keyed"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaBoth | DeltaKeyedBoth:
    """A prepared sink on a new table."""
    uri = str(tmp_path / "orders")
    made = (
        DeltaBoth(uri, ROWS)
        if request.param == "append"
        else DeltaKeyedBoth(uri, ROWS, PrimaryKey(("id",), buckets=3))
    )
    made.prepare()
    return made


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_table_asks_for_is_told(sink: DeltaBoth | DeltaKeyedBoth, asked: str) -> None:
    """By the commit of who staged before it was asked for, and before anything is read
    by who comes later; the table stays as it is.
    """
    receipt, staged = staged_receipt(sink, 0)
    ASKED[asked](sink.uri)
    before = DeltaTable(sink.uri).version()
    for ask in (partial(sink.commit, receipt, staged), sink.prepare):
        with pytest.raises(SchemaChangedError) as refused:
            ask()
        assert asked in str(refused.value)
        assert "Take that off the table" in str(refused.value)
    assert DeltaTable(sink.uri).version() == before


def test_what_is_taken_off_again_is_in_nobodys_way(sink: DeltaBoth | DeltaKeyedBoth) -> None:
    """The feature of a constraint stays in the table's protocol, and asks for nothing by itself."""
    receipt, staged = staged_receipt(sink, 0)
    constrain(sink.uri)
    DeltaTable(sink.uri).alter.drop_constraint("cheap")
    sink.prepare()
    assert isinstance(sink.commit(receipt, staged), Done)
