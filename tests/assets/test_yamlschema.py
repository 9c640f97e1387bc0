"""The JSON schema that `dg check yaml` and editors use.

It accepts all that a spec may contain, and names the line of a mistake.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dagster_shared.yaml_utils import parse_yaml_with_source_position
from jsonschema import Draft202012Validator

from windrow.assets.component import Attributes
from windrow.assets.partitions import partitions_of, windows_of
from windrow.ingest.config.load import parse_spec, parse_specs
from windrow.ingest.config.window import in_time
from windrow.ingest.model.grid import NAMED

USUAL = """
id: a
source: {bootstrap_servers: "127.0.0.1:9", topic: t}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {schema: "a.b:C"}
sink: {path: p}
"""
KAFKA = "source: {bootstrap_servers: '127.0.0.1:9', topic: t"
GOOD = [
    "source: {bootstrap_servers: '127.0.0.1:9,[::1]:10', topic: [a, b]}",
    "source: {bootstrap_servers: '127.0.0.1:9', partitions: {a: [0, 1]}}",
    "source: {bootstrap_servers: '127.0.0.1:9', topic_pattern: 'a.*', on_removed: drop}",
    KAFKA + ", start: earliest}",
    KAFKA + ", start: {timestamp: 2026-01-05T00:00:00Z, no_match: fail}}",
    KAFKA + ", start: {timestamp: 1767571200000}}",
    KAFKA + ", start: {committed: g, reset: latest}}",
    KAFKA + ", start: {offsets: {0: 42}, others: latest}}",
    KAFKA + ", start: {offsets: {t: {0: 42}}, others: latest}}",
    KAFKA + ", start: {offsets: 'partition:0,offset:42', others: latest}}",
    KAFKA + ", split_records: none, offsets_group: none}",
    KAFKA + ", split_records: 5, offsets_group: g}",
    KAFKA + ", tuning: {batch_bytes: 16MiB, batch_messages: 5, stall_timeout: 2s}}",
    KAFKA + ", tuning: {batch_bytes: 5, stall_timeout: 20}}",
    KAFKA + ", client: {client.id: me, socket.keepalive.enable: true}}",
    (
        "window: {grid: '*/15 * * * *', start: 2026-01-05T00:00:00Z, delay: 90, max_wait: 1h30m,"
        " idle: exempt}"
    ),
    "window: {grid: daily, start: 2026-01-05T00:00:00Z}",
    "window: {grid: batch, every: '* * * * *', max_records: 5, min_records: 2}",
    "window: {grid: batch, max_records: none}",
    "limits: {max_dead_ratio: null, max_dead_count: 5}",
    "limits: {max_dead_ratio: 1}",
    "metadata: {offset: at, timestamp: none, headers: h}",
    "decode: {schema: 'a.b:C', on_null: drop, unknown: dead}",
    "decode: {schema: 'a.b:C', coerce: lenient, timestamps: epoch_ms}",
    (
        "decode: {schema: 'a.b:C', fields_include: except_key, key: {format: csv, fields: [a, b],"
        " delimiter: ';'}, headers: {c: x}}"
    ),
    (
        "decode: {schema: 'a.b:C', fields_include: except_key, key: {fields: [k_a], fields_prefix:"
        " k_, unknown: dead}}"
    ),
    "decode: {format: csv, schema: 'a.b:C', quote: none, escape: '!', null_literal: ''}",
    "decode: {format: raw, on_null: keep}",
    "decode: {format: string, schema: 'a.b:C', on_null: drop}",
    "state: x.db",
]
TEMPLATES = [
    (
        "window: {grid: hourly, start: \"{{ env('X', '2026-01-05T00:00:00Z') }}\", delay: \"{{"
        " env('D') }}\"}"
    ),
    "window: {grid: batch, max_records: \"{{ env('X', '5') }}\"}",
    "window: {grid: \"{{ env('G') }}\", start: 2026-01-05T00:00:00Z}",
    "window: {grid: \"{{ env('G') }}\", max_records: 5}",
    "limits: {max_dead_ratio: \"{{ env('X', '0.5') }}\"}",
    "source: {bootstrap_servers: \"{{ env('X') }}\", topic: t, isolation: \"{{ env('Y') }}\"}",
]


@cache
def _make_validator() -> Draft202012Validator:
    return Draft202012Validator(Attributes.model_json_schema())


def mistakes(text: str) -> list[tuple[str, str]]:
    """Returns the place and message of each mistake in a spec with this section."""
    written: dict[str, Any] = {
        **parse_yaml_with_source_position(USUAL).value,
        **parse_yaml_with_source_position(text).value,
    }
    errors = _make_validator().iter_errors(written)
    return [(".".join(map(str, error.absolute_path)), error.message) for error in errors]


@pytest.mark.parametrize("text", GOOD)
def test_what_a_spec_takes_the_schema_takes(text: str) -> None:
    """Each form of a setting is accepted by the JSON schema and by the spec."""
    assert mistakes(text) == []
    parse_spec(
        {
            **parse_yaml_with_source_position(USUAL).value,
            **parse_yaml_with_source_position(text).value,
        },
        Path("/tmp"),
    )


@pytest.mark.parametrize("grid", NAMED)
def test_each_named_grid_is_known_everywhere(grid: str) -> None:
    """Each named grid is accepted by the JSON schema and the spec, and its windows are
    partitions.
    """
    text = f"window: {{grid: {grid}, start: 2026-01-05T00:00:00Z}}"
    assert mistakes(text) == []
    spec = parse_spec(
        {
            **parse_yaml_with_source_position(USUAL).value,
            **parse_yaml_with_source_position(text).value,
        },
        Path("/tmp"),
    )
    key = partitions_of(spec).get_first_partition_key()
    assert [window.span[0] for _, window in windows_of(spec, [str(key)]) if window.span] == [
        in_time(spec.window).start
    ]


@pytest.mark.parametrize("text", TEMPLATES)
def test_templates_pass(text: str) -> None:
    """A template is accepted everywhere, because its value isn't known yet."""
    assert mistakes(text) == []


def test_a_file_of_many_topics_passes(tmp_path: Path) -> None:
    """`{name}` is accepted wherever the spec accepts it, as in the file that `infer` writes."""
    text = """
for_each: {topics: [shop.a, shop.b], topic_pattern: 'shop[.](.*)'}
id: "{name}"
source: {bootstrap_servers: "127.0.0.1:9", offsets_group: "of-{name}"}
decode: {schema: "shop.{name}:Row"}
dagster: {key: "shop/{name}", group_name: "{name}"}
sink: {path: "./data/{name}"}
"""
    assert mistakes(text) == []
    both = {
        **parse_yaml_with_source_position(USUAL).value,
        **parse_yaml_with_source_position(text).value,
    }
    assert [spec.id for spec in parse_specs(both, tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "setting", "phrase"),
    [
        ("id: 'a b'", "id", "'a b' does not match"),
        (
            "source: {bootstrap_servers: nowhere, topic: t}",
            "source.bootstrap_servers",
            "'nowhere' does not match",
        ),
        (KAFKA + ", topik: t}", "source", "'topik' was unexpected"),
        (
            KAFKA + ", isolation: none}",
            "source.isolation",
            "'none' is not one of ['read_committed', 'read_uncommitted']",
        ),
        (
            KAFKA + ", tuning: {batch_bytes: lots}}",
            "source.tuning.batch_bytes",
            "'lots' does not match",
        ),
        (
            "window: {grid: weekly, start: 2026-01-05T00:00:00Z}",
            "window.grid",
            "'weekly' does not match",
        ),
        (
            "window: {grid: hourly, start: 2026-01-05T00:00:00Z, delay: 5 m}",
            "window.delay",
            "'5 m' does not match",
        ),
        ("window: {grid: batch, delay: 5m}", "window", "'delay' was unexpected"),
        (
            "window: {grid: daily, start: 2026-01-05T00:00:00Z, max_records: 5}",
            "window",
            "'max_records' was unexpected",
        ),
        ("window: {grid: hourly}", "window", "'start' is a required property"),
        (
            "window: {grid: batch, max_records: 0}",
            "window.max_records",
            "0 is less than the minimum of 1",
        ),
        (
            "limits: {max_dead_ratio: 2}",
            "limits.max_dead_ratio",
            "2 is greater than the maximum of 1",
        ),
        ("decode: {schema: nothing}", "decode.schema", "'nothing' does not match"),
        (
            "decode: {schema: 'a.b:C', key: {fields: [a], delimiter: ','}}",
            "decode.key",
            "'delimiter' was unexpected",
        ),
        (
            "decode: {schema: 'a.b:C', key: {format: csv}}",
            "decode.key",
            "'fields' is a required property",
        ),
    ],
)
def test_a_mistake_is_named_at_its_place(text: str, setting: str, phrase: str) -> None:
    """A mistake is reported for its setting only, not for all possible forms."""
    [(where, message)] = mistakes(text)
    assert where == setting
    assert phrase in message


@pytest.mark.slow
def test_dg_checks_a_wrong_file(tmp_path: Path) -> None:
    """`dg check yaml` in a user's project fails with the file and line of each mistake."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    folder = tmp_path / "src" / "shop" / "defs" / "payments"
    folder.mkdir(parents=True)
    attributes = USUAL.replace("hourly", "weekly").replace("topic: t", "topik: t")
    file = folder / "defs.yaml"
    file.write_text(
        "type: windrow.dagster.KafkaTable\nattributes:"
        + attributes.replace("\n", "\n  ").rstrip()
        + "\n"
    )
    dg = str(Path(sys.executable).with_name("dg"))
    checked = subprocess.run(
        [dg, "check", "yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    output = checked.stdout + checked.stderr
    assert checked.returncode == 1, output
    assert f"{file}:4" in output
    assert "'topik' was unexpected" in output
    assert f"{file}:5" in output
    assert "'weekly' does not match" in output
