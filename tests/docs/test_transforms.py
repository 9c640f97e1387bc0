"""docs/transforms.md: each SQL statement on the page does what the page says."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from tests.lookups.test_http import Reply, ServiceRequest, serving
from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.config.transform import TransformSpec
from windrow.ingest.schema.messages import HEADERS, MESSAGES
from windrow.ingest.testing.contracts.transform import apply
from windrow.ingest.transform.kind import StepContext
from windrow.ingest.transform.lookup.kind import LookupStepSection
from windrow.ingest.transform.python.kind import PythonSection
from windrow.ingest.transform.sql.step import Sql

PAGE = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
LINES = {
    name: match[1]
    for name, cell in re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    if (match := re.search(r"`(SELECT .+?)`", cell))
}
METADATA = (("topic", "_topic"), ("headers", "_headers"), ("timestamp", "_timestamp"))
AT = dt.datetime(2026, 1, 5, 9, 30, tzinfo=dt.UTC)
ROW = {
    "id": 1,
    "name": "Ada",
    "amount": 120.5,
    "text": "4111",
    "made": AT,
    "ms": 1_767_605_400_000,
    "address": {"city": "Berlin", "zip": "10115"},
    "lines": [1, 2],
    "zipped": b"\x1f\x8b",
}
GIVEN: dict[str, dict[str, object]] = {
    "`Cast`": {"text": 4111.0},
    "`EventRouter` (outbox)": {"id": 1, "payload": None},
    "`ExtractField`": {"id": 1, "city": "Berlin"},
    "`ExtractTopic`, `RegexRouter`, `TopicRegexRouter`": {"kind": "orders-new"},
    "`Filter` with `TopicNameMatches`": {},
    "`Filter` with `HasHeaderKey`": {"id": 1},
    "`Filter` (Confluent, by a condition)": {"id": 1},
    "`Flatten`": {"address_city": "Berlin", "address_zip": "10115"},
    "`HoistField`": {"id": 1, "value": {"name": "Ada", "amount": 120.5}},
    "`InsertField` (topic, offset, timestamp)": {"source": "eu-orders-new"},
    "`InsertField` (static)": {"source": "shop-1"},
    "`MaskField`": {"text": "****"},
    "`MessageTimestampRouter`, `TimestampRouter`": {"month": "2026-01"},
    "`ReplaceField`": {"customer": "Ada"},
    "`TimestampConverter`": {"made": "2026-01-05", "ms": AT},
}
"""The columns that each statement makes of the row; empty if it filters the row out."""


def test_every_line_of_sql_is_tried() -> None:
    """Each statement on the page has its result in this module."""
    assert set(LINES) == set(GIVEN)


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_line_gives_what_the_transform_gave(name: str) -> None:
    """A statement gives the columns of the replaced transform, or filters the row."""
    rows = pa.RecordBatch.from_pylist(
        [ROW],
        schema=pa.schema(
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("amount", pa.float64()),
                ("text", pa.string()),
                ("made", pa.timestamp("us", tz="UTC")),
                ("ms", pa.int64()),
                ("address", pa.struct([("city", pa.string()), ("zip", pa.string())])),
                ("lines", pa.list_(pa.int64())),
                ("zipped", pa.binary()),
            ]
        ),
    )
    message = {"topic": "eu-orders-new", "partition": 0, "offset": 7, "timestamp": AT}
    headers = pa.array([[{"key": "trace", "value": b"1"}]], HEADERS)
    arrays = [
        headers if f.name == "headers" else pa.array([message.get(f.name)]).cast(f.type)
        for f in MESSAGES
    ]
    messages = pa.RecordBatch.from_arrays(arrays, MESSAGES.names)
    sql = Sql(LINES[name], metadata=METADATA)
    assert sql.columns(columns_of(rows))
    decoded_rows = sql.open()(decoded(rows), messages)
    assert not len(decoded_rows.dead_index)
    if not GIVEN[name]:
        assert (decoded_rows.rows.num_rows, decoded_rows.filtered) == (0, 1)
    else:
        (row,) = decoded_rows.rows.to_pylist()
        assert {column: row[column] for column in GIVEN[name]} == GIVEN[name]


CASTS = {
    "CAST('12.7' AS INTEGER)": 13,
    "CAST('1_000' AS INTEGER)": 1000,
    "CAST('0x10' AS INTEGER)": 16,
    "CAST('1e3' AS INTEGER)": 1000,
    "CAST(' 7 ' AS INTEGER)": 7,
    "CAST('1.005' AS DECIMAL(4, 2))": Decimal("1.01"),
    "CAST('t' AS BOOLEAN) AND CAST('yes' AS BOOLEAN) AND CAST('1' AS BOOLEAN)": True,
    "CASE WHEN regexp_full_match(text, '-?\\d+') THEN CAST(text AS BIGINT) END": 4111,
    "CASE WHEN regexp_full_match('1_0', '-?\\d+') THEN CAST('1_0' AS BIGINT) END": None,
    "CAST('2025-01-01T23:00:00-05' AS DATE)": dt.date(2025, 1, 1),
    "CAST('2025-01-01T23:00:00-05' AS TIMESTAMPTZ)": dt.datetime(2025, 1, 2, 4, tzinfo=dt.UTC),
    "CAST('2025-01-01T08:00:00' AS TIMESTAMPTZ)": dt.datetime(2025, 1, 1, 8, tzinfo=dt.UTC),
    """'{"a": {"n": 1.50}}'->>'$.a'""": '{"n":1.5}',
    """'{"n": 1234567890123456789.12}'->>'$.n'""": "1234567890123456800.0",
    """'{"n": 1234567890123456789012}'->>'$.n'""": "1234567890123456789012",
    "list_transform([1], lambda x: x + 1)": [2],
    "7 / 2": 3.5,
    "7 // 2": 3,
}
"""The page's DuckDB expressions, and their values."""


@pytest.mark.parametrize("expression", CASTS)
def test_what_the_page_says_of_duckdb(expression: str) -> None:
    """DuckDB's expressions have the values that the page says."""
    rows = pa.record_batch({"text": ["4111"]})
    transformed = apply(Sql(f"SELECT {expression} AS value FROM rows"), decoded(rows))
    assert transformed.rows["value"].to_pylist() == [CASTS[expression]]


def test_the_function_of_the_page(tmp_path: Path) -> None:
    """The page's Python function works with the page's section of the spec."""
    code = next(c for c in CODE if "def " in c)
    (tmp_path / "enrich.py").write_text(code)
    section = next(s for s in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL) if "python:" in s)
    (step,) = yaml.safe_load(section)["transform"]["steps"]
    python_step = PythonSection.model_validate(step).transform(StepContext("s", tmp_path))
    rows = pa.record_batch({"id": pa.array([1]), "text": ["ende"]})
    transformed = apply(python_step, decoded(rows))
    assert transformed.rows.to_pylist() == [{"id": 1, "text": "ende", "language": "en"}]


def test_the_services_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's two ways to call a service work with the page's model."""
    monkeypatch.setenv("GEO_TOKEN", "x")
    (tmp_path / "geo.py").write_text(next(c for c in CODE if "class Place" in c))

    def reply(request: ServiceRequest) -> Reply:
        if request.method == "GET":
            return Reply({"country": "UA"}) if request.key == "::1" else Reply(status=404)
        return Reply(
            {"data": {"items": [{"ip": ip, "country": "UA"} for ip in request.body["ips"]]}}
        )

    sections = [s for s in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL) if "http:" in s]
    with serving(reply) as service:
        for section in sections:
            local_section = section.replace("https://geo.internal", service.url)
            (step,) = yaml.safe_load(local_section)["transform"]["steps"]
            lookup_step = LookupStepSection.model_validate(step).transform(
                StepContext("s", tmp_path)
            )
            transformed = apply(lookup_step, decoded(pa.record_batch({"ip": ["::1"]})))
            assert transformed.rows["country"].to_pylist() == ["UA"]
    assert [request.method for request in service.requests] == ["GET", "POST"]


def test_the_steps_of_the_page_are_taken() -> None:
    """Each section of a spec on the page is valid."""
    sections = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    transforms = [TransformSpec.model_validate(yaml.safe_load(s)["transform"]) for s in sections]
    steps = [step for section in transforms for step in section.steps]
    assert any(isinstance(step, LookupStepSection) and step.nearest for step in steps)
