"""The table of kinds: the model of its kind reads a spec's `sink` section, and no other kind is
loaded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from windrow.assets.component import Attributes
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.sinks.kinds import KINDS

ATTRIBUTES = {
    "id": "orders",
    "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "t"},
    "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
    "decode": {"schema": "a.b:C"},
}


def refusal_of(sink: object) -> str:
    """Returns the error for a section."""
    with pytest.raises(SpecError) as caught:
        parse_spec({**ATTRIBUTES, "sink": sink}, Path("/tmp"))
    return str(caught.value)


def schema_mistakes(sink: object) -> list[str]:
    """Returns the errors of the JSON schema for a section."""
    errors = Draft202012Validator(Attributes.model_json_schema()).iter_errors(
        {**ATTRIBUTES, "sink": sink}
    )
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", ["hudi", "Delta", "", 7, None, ["delta"]])
def test_an_unknown_kind_is_refused_with_those_there_are(name: object) -> None:
    """An unknown kind is refused at `sink.kind`, with a similar kind's name, or else with all
    names.
    """
    hint = "did you mean delta?" if "elta" in str(name) else f"known are {', '.join(KINDS)}"
    assert f"sink.kind: there is no such kind here; {hint}" in refusal_of(
        {"kind": name, "path": "lake"}
    )


def test_without_a_kind_it_is_delta() -> None:
    """Without a kind it is delta."""
    spec = parse_spec({**ATTRIBUTES, "sink": {"path": "lake"}}, Path("/tmp"))
    assert (spec.sink.kind, spec.sink_path()) == ("delta", "/tmp/lake")


def test_options_belong_to_their_kind() -> None:
    """Each kind has its own options: missing ones are named, another kind's are unknown, and
    typos get a suggestion.
    """
    assert (
        parse_spec(
            {**ATTRIBUTES, "sink": {"kind": "sqlite", "path": "x", "table": "y"}}, Path("/tmp")
        ).sink_path()
        == "/tmp/x#y"
    )
    message = refusal_of({"kind": "sqlite", "path": "x", "evolve": "none"})
    assert "sink.evolve: unknown key; known are kind, path, table" in message
    assert "sink.table: is missing" in message
    assert "sink.paht: unknown key; did you mean path?" in refusal_of({"paht": "x"})
    assert "sink: must be a mapping" in refusal_of("lake")


def test_a_secret_in_a_path_is_not_repeated() -> None:
    """A password in a table's path is refused and not repeated, because the path is kept for
    ever.
    """
    message = refusal_of({"path": "s3://user:hunter2@bucket/t"})
    assert "sink.path: must not hold a user or a password" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        ({"path": "lake"}, []),
        ({"kind": "delta", "path": "{{ env.LAKE }}"}, []),
        ({"kind": "sqlite", "path": "x", "table": "y"}, []),
        ({"kind": "{{ env.KIND }}", "path": "lake"}, []),
        ({"kind": "hudi", "path": "lake"}, ["sink.kind: 'hudi' is not one of ['delta', "]),
        (
            {"kind": "delta", "paht": "lake"},
            ["sink: 'path' is a required property", "sink: Additional properties are not allowed"],
        ),
        (
            {"kind": "sqlite", "path": "x", "evolve": "none"},
            ["sink: 'table' is a required property", "sink: Additional properties are not allowed"],
        ),
    ],
)
def test_editors_get_the_options_of_each_kind(sink: dict[str, Any], says: list[str]) -> None:
    """The JSON schema of a spec checks a section against its own kind only."""
    mistakes = schema_mistakes(sink)
    assert len(mistakes) == len(says), mistakes
    assert all(any(mistake.startswith(expected) for mistake in mistakes) for expected in says), (
        mistakes
    )


def test_every_line_of_the_table_leads_to_a_kind() -> None:
    """Each entry of the table of kinds loads, and its section accepts the entry's name."""
    for name in KINDS:
        model = section_at(KINDS[name])
        assert model.model_fields["kind"].annotation.__args__ == (name,)  # type: ignore[union-attr]


def test_a_kind_is_loaded_when_a_spec_names_it() -> None:
    """Reading the table of kinds loads no kind, and reading a spec doesn't load deltalake."""
    script = (
        "import sys, windrow.ingest.config.load; from pathlib import Path; assert"
        " 'windrow.ingest.sinks.delta.kind' not in"
        f" sys.modules;windrow.ingest.config.load.parse_spec({ {**ATTRIBUTES, 'sink': {'path': 'x'}}!r},"  # noqa: E501
        " Path('/tmp'));print('windrow.ingest.sinks.delta.kind' in sys.modules,{'deltalake',"
        " 'duckdb', 'windrow.ingest.sinks.delta.store'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "True set()"


@pytest.mark.parametrize(
    "sink",
    [
        {"path": "lake/"},
        {"path": "s3://bucket/lake"},
        {"kind": "files", "path": "lake", "format": "parquet"},
        {"kind": "iceberg", "warehouse": "lake/warehouse", "table": "sales.orders"},
        {"kind": "iceberg", "catalog": {"type": "sql", "uri": "sqlite:////tmp/c"}, "table": "a.b"},
        {"kind": "postgres", "url": "postgresql://h/db", "table": "o", "staging": "lake/o"},
        {"kind": "sqlite", "path": "lake.sqlite", "table": "orders"},
        {"kind": "kafka", "topic": "out", "staging": "lake/out"},
    ],
    ids=str,
)
def test_dead_letters_are_where_their_asset_says(sink: dict[str, Any]) -> None:
    """Dead letters are written to the place that pages and messages name."""
    kind = parse_spec({**ATTRIBUTES, "sink": sink}, Path("/tmp")).sink
    store: Any = kind.dead_letters(Path("/tmp"))
    assert kind.dead_place(Path("/tmp")).removeprefix("postgresql://") == store.store.location


DAY = {"day": "created_at"}


def test_partitions_by_columns_have_one_transform_each() -> None:
    """Names have defaults; a bucket needs a number; and tables with a primary key take none."""
    by_columns = [DAY, {"bucket": "id", "buckets": 4, "as": "part"}]
    spec = parse_spec(
        {**ATTRIBUTES, "sink": {"path": "lake", "partition_by": by_columns}}, Path("/tmp")
    )
    fields = [str(section.field) for section in spec.sink.partition_by]
    assert fields == ["day(created_at) as created_at_day", "bucket(4, id) as part"]
    keyed = {"mode": "upsert", "primary_key": ["id"], "partition_by": [DAY]}
    for more, words in (
        ({"partition_by": [{**DAY, "hour": "created_at"}]}, "exactly one of day, month, year"),
        ({"partition_by": [{"as": "part"}]}, "exactly one of day, month, year"),
        ({"partition_by": [{"bucket": "id"}]}, "goes with bucket, which needs it"),
        ({"partition_by": [{**DAY, "buckets": 4}]}, "goes with bucket, which needs it"),
        (keyed, "a row is replaced within the bucket of its key"),
    ):
        assert words in refusal_of({"path": "lake", **more})
    assert "partition_by" in refusal_of({"kind": "sqlite", "path": "a.db", "partition_by": [DAY]})
