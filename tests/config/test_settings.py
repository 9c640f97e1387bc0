"""`docs/settings.md` is generated from the models of the spec.

It lists every setting with its values, its default and its purpose.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from tests.docs import settings as generator
from windrow.ingest.config.cluster import ClusterSpec, TuningSpec
from windrow.ingest.config.load import named_cluster
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.metadata_columns import DEFAULT, METADATA
from windrow.ingest.settings.values import Default, Section, Text
from windrow.ingest.source.reader.reader import BYTES_MAX, ROWS_MAX, STALL_SECONDS

FIELDS = generator.settings()
PAGE = generator.PAGE.read_text(encoding="utf-8")
ROWS = {
    name: cells.split(" | ")
    for name, cells in reversed(re.findall(r"^\| `([a-zA-Z_.]+)` \| (.+) \|$", PAGE, re.MULTILINE))
}
"""The rows of the page by setting. If several kinds have a setting, the first kind's row counts."""


def test_the_page_is_up_to_date() -> None:
    """The page equals the generated text; after a change, run `make docs`."""
    assert generator.page() == PAGE


def test_every_setting_is_in_the_table() -> None:
    """The page lists exactly the settings that exist, in a spec and in a windrow.yaml."""
    shared = {
        name
        for table in generator.tables(ClusterSpec, "clusters.NAME")
        for name, _ in table.settings()
    }
    assert sorted(name for name in ROWS if name not in METADATA) == sorted({*FIELDS, *shared})


def test_the_pages_windrow_yaml_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's example of a windrow.yaml works."""
    (tmp_path / "windrow.yaml").write_text(
        re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[-1]
    )
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    cluster = named_cluster("prod", tmp_path)
    assert isinstance(cluster, ClusterSpec)
    assert cluster.client["sasl.password"] == "hunter2"


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_says_what_it_is_for(name: str) -> None:
    """Each setting has its values, its default, and its purpose as a sentence."""
    values, default, meaning = ROWS[name]
    assert values
    assert default
    assert meaning[0].isupper()
    assert meaning.endswith(".")


EMPTY = {
    "source.client",
    "sink.client",
    "sink.headers",
    "dead_letters.client",
    "decode.codecs",
    "decode.headers",
    "decode.envelope",
    "decode.written_with",
    "transform.steps.from.headers",
    "dagster.owners",
    "dagster.tags",
    "dagster.spark.conf",
}
"""Settings that are empty by default."""


@pytest.mark.parametrize("name", FIELDS)
def test_the_table_has_the_defaults(name: str) -> None:
    """The page has each default as a user would write it."""
    field, (_, default, _) = FIELDS[name], ROWS[name]
    if field.is_required():
        assert default == "required"
    elif name == "metadata":
        assert default == ", ".join(f"`{column}`" for column in DEFAULT.values())
    elif isinstance(field.default, timedelta):
        seconds = int(field.default.total_seconds())
        assert default == (f"`{seconds // 60}m`" if seconds >= 60 else f"`{seconds}s`")
    elif field.default is not None and name not in EMPTY:
        assert default.strip("`") == str(field.default)


@pytest.mark.parametrize("name", TuningSpec.model_fields)
def test_the_tunings_defaults_are_those_that_hold(name: str) -> None:
    """The page has the reader's defaults for tuning."""
    reader_defaults = {"rows_max": ROWS_MAX, "bytes_max": BYTES_MAX, "stall_seconds": STALL_SECONDS}
    tuning = TuningSpec.model_validate({name: ROWS[f"source.tuning.{name}"][1].strip("`")})
    ((key, value),) = tuning.reader().items()
    assert value == reader_defaults[key]


def test_the_names_of_metadata_are_listed() -> None:
    """The page lists the names of metadata columns, in the order of the columns."""
    section = PAGE.partition("## Metadata columns")[2]
    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == tuple(METADATA)


class _Table(Section):
    kind: Literal["table"] = Field(default="table", description="A table.")
    path: Text = Field(description="Where it is.")


class _Topic(Section):
    kind: Literal["topic"] = Field(description="A topic.")
    name: Annotated[Text | None, Default("the pipeline's id")] = Field(
        default=None, description="What it is called."
    )


class _Either(Section):
    sink: Annotated[_Table | _Topic, Field(discriminator="kind")] = Field(
        description="Where rows go."
    )


def test_a_section_of_several_kinds_has_a_table_for_each() -> None:
    """A section with several kinds has a table for each kind."""
    root, table, topic = generator.tables(_Either)
    assert list(root.settings()) == []
    assert (table.heading, topic.heading) == ("`sink`, `kind: table`", "`sink`, `kind: topic`")
    assert [name for name, _ in topic.settings()] == ["sink.kind", "sink.name"]
    assert list(generator.settings(_Either)) == ["sink.kind", "sink.path", "sink.name"]


def test_editors_get_the_settings() -> None:
    """The JSON schema has every setting of source and window, with its description."""
    schema = PipelineSpec.model_json_schema()
    for section, *models in (
        ("source", "SourceSpec"),
        ("window", "TimeWindows", "MicroBatches"),
        ("source.tuning", "TuningSpec"),
        ("source.start", "PositionSpec"),
    ):
        field_names = {
            name.removeprefix(f"{section}.")
            for name in FIELDS
            if re.fullmatch(rf"{section}\.[a-z_]+", name)
        }
        properties = {
            name: node
            for model in models
            for name, node in schema["$defs"][model]["properties"].items()
        }
        assert field_names <= set(properties)
        assert all(properties[name]["description"] for name in field_names)
    assert set(schema["properties"]["metadata"]["properties"]) == set(METADATA)
