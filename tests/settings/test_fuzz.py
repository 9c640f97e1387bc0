"""A mangled spec file is read as a spec or raises SpecError, and nothing else."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError

WHOLE = """\
type: windrow.dagster.KafkaTable
attributes:
  id: orders
  source:
    bootstrap_servers: "{{ env('BROKERS', 'localhost:9092') }}"
    topic: [shop.orders, shop.others]
    start: {offsets: {shop.orders: {0: 42}}, others: earliest}
    split_records: 100000
    offsets_group: none
    tuning: {stall_timeout: 100ms, batch_bytes: 16MiB, batch_messages: 20}
    client:
      {security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me,
      sasl.password: "{{ env.PATH }}"}
  window:
    grid: '*/15 * * * *'
    start: 2026-01-01T00:00:00Z
    delay: 1h30m
    idle: exempt
  decode: {schema: "my.schemas:Order", on_null: drop}
  limits: {max_dead_ratio: 0.01, max_dead_count: null}
  metadata: {timestamp: none, key: _key}
  sink:
    path: lake/orders  # relative
  state: postgresql://me@db/windrow
"""
PIECES = (
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a ",
    "*other ",
    "!!int ",
    "!x ",
    "%",
    "---\n",
    "...\n",
    "<<: ",
    "|\n",
    ">-\n  ",
    "'",
    '"',
    "#",
    ",",
    "\\x00",
    "\t",
    "\n",
    "  ",
    "{{",
    "}}",
    "{{ env.A }}",
    "{{ env('A', 'b') }}",
    "{% for a in b %}",
    "{{ 9**9 }}",
    "~",
    "null",
    "on",
    "010",
    "0x10",
    "1e400",
    ".inf",
    ".nan",
    "-1",
    "9" * 25,
    "9" * 5000,
    "1_0",
    "12:30:00",
    "0001-01-01T00:00:00+05:00",
    "9999-12-31T23:00:00-05:00",
    "2026-02-30",
    "true",
    "batch",
    "hourly",
    "5 4 31 2 *",
    "0 0 29 2 1",
    "99999999999d",
    "1GiB",
    "a" * 300,
    "(" * 200,
    "é",
    "\ud800",
    "~nobody/x",
    "s3://a:b@c/d?e",
    "://",
    "postgresql://a:b",
    "partition:0,offset:",
    "../..",
    "/",
    "topic_pattern: (",
    "committed: x",
    "timestamp: 1",
)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """Draws the whole spec with some parts cut, repeated or inserted."""
    text = WHOLE
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        middle = draw(
            st.one_of(
                st.just(""),
                st.sampled_from(PIECES),
                st.text(max_size=8),
                st.just(text[start:end] * 2),
            )
        )
        text = text[:start] + middle + text[end:]
    return text


@st.composite
def with_value(draw: st.DrawFn) -> str:
    """Draws the whole spec with the value of one line replaced."""
    lines = WHOLE.splitlines()
    index = draw(st.integers(2, len(lines) - 1))
    key = lines[index].partition(": ")[0].rstrip(":")
    lines[index] = f"{key}: {draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)))}"
    return "\n".join(lines)


def read(text: str) -> PipelineSpec | None:
    """Returns the spec of a text; None if it raises SpecError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "defs.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        with suppress(SpecError):
            return load_spec(file)
    return None


def test_it_is_read_as_it_stands() -> None:
    """The text that is mangled in these tests is a valid spec."""
    assert read(WHOLE) is not None


@given(st.one_of(mangled(), with_value()))
@example(WHOLE.replace("orders", "\x85"))
@example(WHOLE.replace("lake/orders", '"{{ env.PATH }}\\0"'))
def test_a_mangled_spec(text: str) -> None:
    """A mangled spec file gives a usable spec or SpecError."""
    spec = read(text)
    if spec is not None:
        assert spec.sink_path()
        assert spec.state_url()
        assert spec.source.for_planning(spec.window.grid)
        assert repr(spec)


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=4)
    | st.datetimes()
    | st.dates()
)
VALUES: st.SearchStrategy[object] = st.recursive(
    PLAIN | st.sampled_from(PIECES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS: dict[str, tuple[str, ...]] = {
    "id": (),
    "state": (),
    "source": (
        "bootstrap_servers",
        "topic",
        "topic_pattern",
        "partitions",
        "start",
        "isolation",
        "tuning",
        "client",
        "split_records",
    ),
    "window": ("grid", "start", "delay", "max_wait", "max_records", "every"),
    "decode": ("schema", "on_null"),
    "sink": ("path", "kind"),
    "limits": ("max_dead_ratio", "max_dead_count"),
    "metadata": ("topic", "key"),
}
SPECS = st.fixed_dictionaries(
    {},
    optional={
        key: st.fixed_dictionaries({}, optional=dict.fromkeys(below, VALUES)) if below else VALUES
        for key, below in KEYS.items()
    },
)


@given(SPECS | st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES)))
@example({"source": {"client": {0: None}}})
def test_values_from_python(attributes: dict[str, object]) -> None:
    """Attributes of any types from Python give a spec or SpecError."""
    with suppress(SpecError):
        assert repr(parse_spec(attributes, Path("/nowhere")))
