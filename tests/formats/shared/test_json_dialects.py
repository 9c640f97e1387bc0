"""Dialects of JSON: the defaults of each format, and which rules override which."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.ingest.formats.cdc.kind import (
    CanalJsonSection,
    DebeziumJsonSection,
    DmsJsonSection,
    MaxwellJsonSection,
)
from windrow.ingest.formats.confluent.kind import JsonSchemaConfluentSection
from windrow.ingest.formats.csv.kind import CsvSection
from windrow.ingest.formats.json.kind import JsonSection
from windrow.ingest.formats.shared.json_dialects import (
    CANAL,
    DEBEZIUM,
    EXACT,
    JSON,
    MAXWELL,
    Reading,
)


@pytest.mark.parametrize(
    ("section", "dialect"),
    [
        (JsonSection, JSON),
        (JsonSchemaConfluentSection, JSON),
        (CsvSection, EXACT),
        (DebeziumJsonSection, DEBEZIUM),
        (CanalJsonSection, CANAL),
        (MaxwellJsonSection, MAXWELL),
        (DmsJsonSection, EXACT),
    ],
)
def test_without_options_a_format_has_its_dialect(section: Any, dialect: Reading) -> None:
    """A format without options has the options of its dialect."""
    assert section(schema="m.py:M").reading == dialect


def test_the_unit_of_numbers() -> None:
    """The unit of numbers: a message's schema overrides a column, which overrides the spec.

    A column with a zone has no unit, because its values are texts.
    """
    millis, stated = Reading("epoch_ms"), Reading("epoch_ms", stated=True)
    assert (millis.unit(None), millis.unit("s"), millis.unit(None, "UTC")) == ("ms", "s", None)
    assert (EXACT.unit(None), EXACT.unit("s"), EXACT.unit("s", "UTC")) == (None, "s", None)
    assert (stated.unit("s"), stated.unit("s", "UTC")) == ("ms", "ms")
    assert Reading(stated=True).unit("s") is None


def test_the_zone_of_texts() -> None:
    """The zone of texts: a column's zone overrides the spec's, which overrides UTC."""
    sql, berlin = Reading("sql"), Reading("sql", zone="Europe/Berlin")
    assert (EXACT.clock(), sql.clock(), berlin.clock()) == (None, "UTC", "Europe/Berlin")
    assert berlin.clock("Asia/Tokyo") == "Asia/Tokyo"


def test_values_inside() -> None:
    """A field or the items may have their own rules; else they inherit the rules around them."""
    inner = Reading("epoch_us")
    reading = Reading(lenient=True, fields=(("a", inner),), items=inner)
    assert reading.field("a") is inner
    assert reading.field("b") == Reading(lenient=True)
    assert reading.item() is inner
    assert Reading(lenient=True, fields=(("a", inner),)).item() == Reading(lenient=True)
