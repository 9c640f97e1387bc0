"""The files of a new pipeline are inferred from a topic's messages, and decode these messages."""

from __future__ import annotations

import json
import struct
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.formats.avro.wire import varint
from tests.formats.confluent.registries import framed
from tests.infer.test_every_value import run
from tests.profiles import examples
from tests.registry.server import RegistryServer
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.infer.candidates import TypeGuess
from windrow.ingest.infer.json_documents import guess_type
from windrow.ingest.infer.new_pipeline import Inferred, infer, template, write_files
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.reader import MemoryReader

NOW = datetime(2026, 1, 6, 12, 30, tzinfo=UTC)
FIRST = datetime(2026, 1, 5, 3, 20, tzinfo=UTC)
ADDRESS = "127.0.0.1:1"
ASKED = PipelineRequest("shop.orders", ADDRESS)


def broker_with(*values: bytes | None, first: datetime = FIRST) -> MemoryBroker:
    """Returns a broker whose topic has these messages, one each second, in two topic-partitions."""
    broker = MemoryBroker()
    broker.create_topic("shop.orders", partitions=2, retention_ms=None)
    for i, value in enumerate(values):
        broker.produce(
            TopicPartition("shop.orders", i % 2), value, timestamp=first + timedelta(seconds=i)
        )
    return broker


def infer_from(
    folder: Path,
    broker: MemoryBroker,
    request: PipelineRequest = ASKED,
    max_messages: int = 500,
    rows_max: int = 100,
) -> Inferred:
    """Writes the files that are inferred from a topic in memory."""
    return infer(
        folder,
        request,
        max_messages,
        lambda _: (broker, lambda plan: MemoryReader(broker, plan, rows_max=rows_max)),
        NOW,
    )


def infer_messages(
    folder: Path, *values: bytes | None, request: PipelineRequest = ASKED, first: datetime = FIRST
) -> Inferred:
    """Writes the files that are inferred from these messages."""
    return infer_from(folder, broker_with(*values, first=first), request)


def columns_of(folder: Path) -> dict[str, str]:
    """Returns the columns of the written schema, by name."""
    return dict(assemble(load_spec(folder / "defs.yaml")).columns().described())


def test_types_are_guessed_from_what_is_there(tmp_path: Path) -> None:
    """Each kind of value has its own type.

    A field that is sometimes missing or null is nullable.
    """
    first_order = {
        "id": 1,
        "price": 1.5,
        "whole": 2,
        "big": 2**70,
        "at": "2026-01-05T03:20:00Z",
        "day": "2026-01-05",
        "name": "a",
        "ok": True,
        "to": {"city": "x", "zip": None},
        "tags": ["a"],
        "lines": [{"n": 1}],
        "note": None,
    }
    second_order = first_order | {"whole": 2.5, "note": "x", "to": {"city": None, "zip": 7}}
    del second_order["ok"]
    report = infer_messages(
        tmp_path, json.dumps(first_order).encode(), json.dumps(second_order).encode()
    )
    assert (report.sampled, report.fitting, report.refused, report.format) == (2, 2, (), "json")
    assert columns_of(tmp_path) == {
        "id": "int64 not null",
        "price": "double not null",
        "whole": "double not null",
        "big": "decimal128(38, 0) not null",
        "at": "timestamp[us, tz=UTC] not null",
        "day": "date32[day] not null",
        "name": "string not null",
        "ok": "bool",
        "to": "struct<city: string, zip: int64> not null",
        "tags": "list<item: string> not null",
        "lines": "list<item: struct<n: int64>> not null",
        "note": "string",
    }


def test_odd_names_become_columns_all_the_same(tmp_path: Path) -> None:
    """A field with an odd name becomes a column with the same name as in JSON.

    The names are keywords, and names of pandera and of the file's imports.
    """
    names = [
        "class",
        "from",
        "1st",
        "_private",
        "__init__",
        "validate",
        "Config",
        "pa",
        "pl",
        "é",
        "x.y",
        "field_1st",
        "a-b",
        '"',
        "\\",
    ]
    report = infer_messages(tmp_path, json.dumps(dict.fromkeys(names, 1)).encode())
    assert report.fitting == 1
    assert list(columns_of(tmp_path)) == names


@pytest.mark.parametrize(
    ("value", "expected_reason"),
    [
        ({"x": {}, "id": 1}, "only objects without fields"),
        ({"x": [{}], "id": 1}, "of its items only objects without fields"),
        ({"a b": 1, "id": 1}, "Spark can't read"),
        ({"": 1, "id": 1}, "a column's name"),
        ({"Id": 1, "id": 1}, "differs from 'Id' by case only"),
        ({"_OFFSET": 1, "id": 1}, "under `metadata`"),
    ],
)
def test_what_no_column_can_hold_is_left_out_with_a_word(
    tmp_path: Path, value: dict[str, Any], expected_reason: str
) -> None:
    """A field that no column can hold is left out.

    The file and the command give the reason. The rest of the message is a row.
    """
    report = infer_messages(tmp_path, json.dumps(value).encode())
    assert (report.fitting, report.columns) == (1, 1)
    assert expected_reason in (tmp_path / "schema.py").read_text()
    assert [expected_reason in reason for _, reason in report.omitted] == [True]


ODD_KEYS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "fields of ours": ({"_offset": 1, "shop": 2}, {"v": 3}, ["shop", "v"]),
    "fields by case": ({"A": 1, "a": 2}, {"v": 3}, ["A", "v"]),
    "templates": ({"{{ env.HOME }}": 1, "{% x %}": 2}, {"v": 3}, ["v"]),
    "control characters": ({"\n": 1, "shop": 2}, {"v": 3}, ["shop", "v"]),
    "a prefix that is taken": ({"id": 1}, {"id": 2, "key_id": 3}, ["key__id", "id", "key_id"]),
}


@pytest.mark.parametrize("case", ODD_KEYS)
def test_no_field_of_a_key_stops_or_hides_another(tmp_path: Path, case: str) -> None:
    """A key's field that can't be a column is left out with a reason.

    It affects no other field. It is left out of the spec too. A field's name is never read as a
    template.
    """
    key, value, columns = ODD_KEYS[case]
    broker = MemoryBroker()
    broker.create_topic("shop.orders", partitions=1, retention_ms=None)
    broker.produce(
        TopicPartition("shop.orders", 0),
        json.dumps(value).encode(),
        key=json.dumps(key).encode(),
        timestamp=FIRST,
    )
    assert infer_from(tmp_path, broker).fitting == 1
    assert list(columns_of(tmp_path)) == columns
    assert (tmp_path / "schema.py").read_text().count("left out") == len(key) + len(value) - len(
        columns
    )


@pytest.mark.parametrize(("id_", "columns"), [(5, ["id", "n"]), (6, ["key_id", "id", "n"])])
@pytest.mark.parametrize("by_registry", [True, False])
def test_a_key_that_says_the_same_is_left_out(
    tmp_path: Path, schema_registry: RegistryServer, id_: int, columns: list[str], by_registry: bool
) -> None:
    """A key with the same values as the message is left out.

    The values are compared, not only the names. This holds for JSON and for registered schemas.
    """
    broker, hints, topic = broker_with(), {}, "shop.orders"
    key, value = json.dumps({"id": id_}).encode(), b'{"id": 5, "n": 1}'
    if by_registry:
        topic = f"keys.{id_}"
        broker.create_topic(topic, partitions=1, retention_ms=None)
        hints = {"registry": schema_registry.url}
        fields = [{"name": name, "type": "long"} for name in ("id", "n")]
        ids = [
            schema_registry.register(
                f"{topic}-{part}",
                json.dumps({"type": "record", "name": part, "fields": fields[:field_count]}),
            )
            for part, field_count in (("key", 1), ("value", 2))
        ]
        key, value = framed(ids[0], varint(id_)), framed(ids[1], varint(5) + varint(1))
    broker.produce(TopicPartition(topic, 0), value, key=key, timestamp=FIRST)
    report = infer_from(tmp_path, broker, PipelineRequest(topic, ADDRESS, **hints))
    assert list(columns_of(tmp_path)) == columns
    assert ("the keys are the same as the value's 'id'" in report.notes) == (id_ == 5)


WHOLE_KEYS: dict[str, tuple[list[bytes], str, list[Any]]] = {
    "texts": ([b"a-1", "ä 2".encode()], "string", ["a-1", "ä 2"]),
    "digits behind a zero": ([b"007", b"008"], "string", ["007", "008"]),
    "fractions": ([b"1.10", b"1.9"], "string", ["1.10", "1.9"]),
    "whole numbers": ([b"17", b"-18"], "json", [17, -18]),
    "JSON texts": ([b'"a"', b'"b"'], "json", ["a", "b"]),
    "booleans": ([b"true", b"false"], "json", [True, False]),
    "JSON of several kinds": ([b'"a"', b"17"], "string", ['"a"', "17"]),
    "shorts": ([b"\0\x11", b"\xff\xfe"], "raw", [17, -2]),
    "integers": ([b"\x69\0\0\0", b"\xff\xff\xff\xfe"], "raw", [0x69000000, -2]),
    "longs": ([bytes(7) + b"\x11", b"\xff" * 8], "raw", [17, -1]),
    "doubles": ([struct.pack(">d", n) for n in (2.5, -3e6)], "raw", [2.5, -3e6]),
    "bytes": ([b"\0\1", b"\0\1\2"], "raw", [b"\0\1", b"\0\1\2"]),
}
"""Keys, the format that reads them, and the values of their column."""


@pytest.mark.parametrize(
    ("name", "value", "hints"),
    [
        *((name, b'{"KEY": "x"}', {}) for name in WHOLE_KEYS),
        ("texts", b"x", {"format": "csv", "columns": ("KEY",)}),
    ],
)
def test_a_key_that_is_one_value_is_a_column(
    name: str, value: bytes, hints: dict[str, Any]
) -> None:
    """A key that is one value becomes a column, also next to a field of the same name.

    No part of the key is lost.
    """
    keys, key_format, values = WHOLE_KEYS[name]
    done = run([(key, value) for key in keys], **hints)
    assert [row for rows in done.rows for row in rows or ()] == [
        {"key_": key_text, "KEY": "x"} for key_text in values
    ]
    assert done.settings.decode.key.format == key_format
    assert done.inferred.notes == ()


@pytest.mark.parametrize(("key", "columns"), [(b"5", ["id", "n"]), (b"6", ["key", "id", "n"])])
def test_a_key_that_is_the_value_of_a_field_is_left_out(
    tmp_path: Path, key: bytes, columns: list[str]
) -> None:
    """A key that equals a field is left out, also if one is a text and the other a number."""
    broker = broker_with()
    for message_key in (b"5", key):
        broker.produce(
            TopicPartition("shop.orders", 0),
            b'{"id": "5", "n": 1}',
            key=message_key,
            timestamp=FIRST,
        )
    report = infer_from(tmp_path, broker)
    assert list(columns_of(tmp_path)) == columns
    assert ("the keys are the same as the value's 'id'" in report.notes) == (key == b"5")


def test_a_key_that_says_more_inside_stays(tmp_path: Path) -> None:
    """A key is kept if it has inner values that the message lacks, even without columns."""
    broker = broker_with()
    broker.produce(
        TopicPartition("shop.orders", 0),
        b'{"id": {"a": 1}, "v": 2}',
        key=b'{"id": {"a": 1, "A": 2}}',
        timestamp=FIRST,
    )
    report = infer_from(tmp_path, broker)
    assert list(columns_of(tmp_path)) == ["key_id", "id", "v"]
    assert [path for path, _ in report.omitted] == ["key_id.A"]


def test_a_primary_key_that_no_spec_can_name_is_refused(tmp_path: Path) -> None:
    """A primary key that a spec can't name is refused.

    The error has the field's name, and no value of the environment.
    """
    name = "{{ env.HOME }}"
    event = {
        "type": "INSERT",
        "database": "d",
        "table": "t",
        "isDdl": False,
        "data": [{name: "1"}],
        "pkNames": [name],
    }
    with pytest.raises(
        SpecError, match=r"'\{\{ env.HOME \}\}' of the rows' primary key .* would be a template"
    ):
        infer_messages(tmp_path, json.dumps(event).encode())


def test_data_for_fields_makes_no_table(tmp_path: Path) -> None:
    """Documents whose field names are data are refused, as each name would become a column."""
    with pytest.raises(SpecError, match="have 5,001 different fields"):
        infer_messages(
            tmp_path,
            *(json.dumps({f"{index}-{n}": 1 for n in range(1667)}).encode() for index in range(3)),
        )


def test_a_few_odd_values_do_not_take_the_type_away() -> None:
    """A few odd values among many don't change the type; among few values the type takes them."""
    assert guess_type([1, "x"]).lenient
    integers: list[Any] = [1] * 199
    assert guess_type([*integers, "x"]) == TypeGuess(
        pa.int64(), "1 of 200 sampled values of another type, and refused"
    )
    assert guess_type([*integers, {}]).type == pa.int64()


def test_timestamps_that_are_cut_are_told(tmp_path: Path) -> None:
    """A note has the number of messages with truncated timestamps, and how to keep all digits."""
    document_with = '{{"at": "2026-01-05T03:20:00.{}Z"}}'.format
    report = infer_messages(
        tmp_path, *(document_with(digits).encode() for digits in ("123456", "1234567", "1"))
    )
    (note,) = report.notes
    assert note.startswith("1 of the sampled messages have timestamps finer than a microsecond")


def test_the_first_window_holds_the_earliest_message(tmp_path: Path) -> None:
    """The first window begins at the earliest timestamp on the grid.

    A single much older timestamp is ignored.
    """
    broker = broker_with(*[b'{"id": 1}'] * 20)
    broker.produce(
        TopicPartition("shop.orders", 0), b'{"id": 1}', timestamp=datetime(1970, 1, 2, tzinfo=UTC)
    )
    report = infer_from(tmp_path, broker)
    assert (report.grid, report.start) == ("hourly", FIRST.replace(minute=0))
    assert report.window == report.start
    assert load_spec(tmp_path / "defs.yaml").window.start == report.start


def test_timestamps_in_seconds_are_told(tmp_path: Path) -> None:
    """A note reports timestamps in seconds, which Kafka takes for milliseconds of 1970."""
    first = datetime.fromtimestamp(FIRST.timestamp() / 1000, UTC)
    report = infer_from(tmp_path, broker_with(b'{"id": 1}', first=first))
    assert report.start is not None
    assert report.start.year == 1970
    assert "are these seconds, not milliseconds?" in " ".join(report.notes)
    assert infer_from(tmp_path / "right", broker_with(b'{"id": 1}')).notes == ()


def test_where_no_hour_is_over_there_are_micro_batches(tmp_path: Path) -> None:
    """If no hour is over yet, micro-batches are proposed, unless another grid was requested.

    So the first messages can be read at once.
    """
    fresh = infer_messages(tmp_path / "a", b'{"id": 1}', first=NOW - timedelta(minutes=1))
    assert (fresh.grid, fresh.start) == ("batch", None)
    daily = infer_messages(
        tmp_path / "b",
        b'{"id": 1}',
        first=NOW - timedelta(minutes=1),
        request=PipelineRequest("shop.orders", ADDRESS, grid="daily"),
    )
    assert (daily.grid, daily.start, daily.window) == ("daily", NOW.replace(hour=0, minute=0), None)


def test_a_template_asks_nobody(tmp_path: Path) -> None:
    """The template is written without a request to Kafka, with example columns, and loads."""
    template(tmp_path, ASKED, NOW)
    assert load_spec(tmp_path / "defs.yaml").source.topic == "shop.orders"
    assert "id" in columns_of(tmp_path)


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    """Malformed messages and tombstones in the sample are counted, and affect no inferred type.

    The written spec drops tombstones.
    """
    report = infer_messages(tmp_path, *[b'{"id": 1}'] * 5, b"poison", None)
    assert (report.sampled, report.fitting, report.refused) == (7, 6, (("not_json", 1),))
    assert load_spec(tmp_path / "defs.yaml").decode.on_null == "drop"


def test_a_sample_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    """A sample without any fitting message is refused."""
    report = infer_messages(tmp_path, b'{"a": 1, "a": 2}')
    assert (report.fitting, report.fit) == (0, False)


@pytest.mark.parametrize("name", ["a b", "_topic", "{{ x }}"])
def test_no_field_of_a_line_is_left_out(tmp_path: Path, name: str) -> None:
    """A column of CSV lines can't be left out, because fields are found by their position."""
    request = msgspec.structs.replace(ASKED, format="csv", columns=("id", name, "c"))
    with pytest.raises(SpecError, match="in --columns can't be a column"):
        infer_messages(tmp_path / "new", b"1,2,3", request=request)
    assert not (tmp_path / "new").exists()


def test_large_messages_bound_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of the sample is bounded, except for one batch."""
    monkeypatch.setattr("windrow.ingest.admin.peek.MOST_BYTES", 10_000)
    broker = broker_with(*[json.dumps({"text": "x" * 1000}).encode()] * 200)
    report = infer_from(tmp_path, broker, rows_max=5)
    assert 10 <= report.sampled <= 15
    assert report.fitting == report.sampled


@pytest.mark.parametrize("existing_file", ["defs.yaml", "schema.py"])
def test_nothing_is_overwritten(tmp_path: Path, existing_file: str) -> None:
    """`infer` overwrites nothing: one existing file raises SpecError before Kafka is asked."""
    (tmp_path / existing_file).write_text("mine")
    with pytest.raises(SpecError, match="already"):
        infer_messages(tmp_path, b'{"id": 1}')
    assert [path.name for path in tmp_path.iterdir()] == [existing_file]
    assert (tmp_path / existing_file).read_text() == "mine"


@pytest.mark.parametrize(
    "bad_request",
    [
        PipelineRequest("t", "nowhere"),
        PipelineRequest("t", ADDRESS, id="a b"),
        PipelineRequest("t", ADDRESS, grid="weekly"),
        PipelineRequest("t", registry="x"),
    ],
)
def test_wrong_words_write_nothing(tmp_path: Path, bad_request: PipelineRequest) -> None:
    """Invalid options are refused before anything is asked or written."""
    with pytest.raises(SpecError):
        infer_messages(tmp_path / "new", b'{"id": 1}', request=bad_request)
    assert not (tmp_path / "new").exists()


NUMBERS = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["2026-01-05", "2026-01-05T03:20:00Z", "2026-02-30", "2026-01-05T03:20:00.1234567Z", "1", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    st.sampled_from(
        ["id", "class", "_offset", "ID", "a b", "validate", "pa", "^id$", "^$", "^", "*"]
    )
    | TEXTS
)


@settings(max_examples=examples(40))
@example([{"": {"2026-01-05": None}}])
@example([{"": {"": None}}])
@given(st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6), min_size=1, max_size=8))
def test_every_sampled_document_fits_what_was_guessed_from_it(
    documents: list[dict[str, Any]],
) -> None:
    """Each sampled document is a row with the inferred schema, for arbitrary JSON objects."""
    with tempfile.TemporaryDirectory() as folder:
        report = infer_messages(
            Path(folder), *(json.dumps({"n": 1} | d).encode() for d in documents)
        )
    assert (report.fitting, report.refused) == (len(documents), ())


def test_files_that_can_not_all_be_written_leave_none(tmp_path: Path) -> None:
    """A file that fails takes those before it along: the same command works later."""
    with pytest.raises(UnreachableError, match="run this again"):
        write_files(tmp_path, {"schema.py": "first", "missing/defs.yaml": "second"})
    assert not [*tmp_path.iterdir()]
