"""A format needs a folder and a line in the table of kinds.

The format that these tests add works from a spec to a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from jsonschema import Draft202012Validator

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.words import WordsDecoder
from tests.sinks.delta.pieces import delta_pieces
from windrow.assets.component import Attributes
from windrow.ingest.admin.verify import verify
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.formats.kinds import FORMATS
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import RECEIPT_VERSION
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import Columns
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.with_dead_letters import read_dead
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = Window("words", START, START + timedelta(hours=1))
TP = TopicPartition("shop.words", 0)
KNOWN = ", ".join(FORMATS)
RULES = """\
import pandera.polars as pa
import polars as pl


class Word(pa.DataFrameModel):
    word: pl.String = pa.Field(str_matches="^[a-z]+$")
    letters: pl.Int32
"""


class TestWords(DecoderContract):
    """The format of these tests fulfils the contract of every format."""

    GOOD: ClassVar = [b"one", b"two words", b"the same same word"]
    BAD: ClassVar = [b"\xffhunter2", b"hunter2 " * 9, "hünter hunter2".encode()]

    @pytest.fixture
    def decoder(self) -> WordsDecoder:
        return WordsDecoder(most=8)

    def test_monsters_cost_themselves_only(self, decoder: Any) -> None:
        """Megabytes of one byte are one word."""
        assert self.decode_values(decoder, [b"a", b"\x00" * (4 << 20), b"b"]).rows[
            "letters"
        ].to_pylist() == [1, 4 << 20, 1]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registration of the format `words`."""
    monkeypatch.setitem(FORMATS, "words", "tests.formats.words:WordsSection")
    return iter(())


def attributes(folder: Path, **decode: Any) -> dict[str, Any]:
    """Returns a spec of the format `words`."""
    return {
        "id": "words",
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TP.topic},
        "window": {"grid": "hourly", "start": START},
        "decode": {"format": "words", **decode},
        "sink": {"path": str(folder / "table")},
        "state": str(folder / "state.db"),
        "metadata": {"ordinal": "_ordinal"},
        "limits": {"max_dead_ratio": 1.0},
    }


def pipeline(folder: Path, values: list[bytes | None], **decode: Any) -> Pipeline:
    """Returns the assembled pipeline of a spec, on a topic in memory."""
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    for i, value in enumerate(values):
        broker.produce(TP, value, timestamp=START + timedelta(seconds=i))
    assembled = assemble(parse_spec(attributes(folder, **decode), folder), LocalEngine())
    return replace(assembled, broker=broker, reader=partial(MemoryReader, broker, rows_max=3))


def look(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the table's rows in order: offset, ordinal, word and letters."""
    table = pl.concat([pl.DataFrame(piece) for piece in delta_pieces(str(folder / "table"))])
    return table.select("_offset", "_ordinal", "word", "letters").rows()


@pytest.mark.usefixtures("words")
def test_from_a_spec_to_a_table(tmp_path: Path) -> None:
    """A message becomes any number of rows, each with its ordinal.

    The receipt counts messages and rows, and the table verifies.
    """
    words_pipeline = pipeline(
        tmp_path, [b"a bc", b"", None, b"one", b"x x x", b"\xff", b"a b c d e"], most=4
    )
    receipt = run(words_pipeline, HOUR, Request("r")).committed.receipt
    rows = [
        (0, 0, "a", 1),
        (0, 1, "bc", 2),
        (3, 0, "one", 3),
        (4, 0, "x", 1),
        (4, 1, "x", 1),
        (4, 2, "x", 1),
    ]
    assert look(tmp_path) == rows
    counts = receipt.counts
    assert (
        counts.read,
        counts.valid,
        counts.rows,
        counts.dead,
        counts.dropped,
        counts.filtered,
    ) == (7, 3, 6, 3, 0, 1)
    assert (receipt.version, receipt.schema) == (
        RECEIPT_VERSION,
        (("word", "string not null"), ("letters", "int32 not null")),
    )
    assert dict(receipt.splits[0].reasons) == {"not_ascii": 1, "tombstone": 1, "too_many": 1}
    metadata = words_pipeline.spec.metadata
    verification = verify(
        "words",
        words_pipeline.sink,
        words_pipeline.dead_letters,
        words_pipeline.ledger,
        words_pipeline.broker,
        deep=True,
    )
    assert (verification.rows, verification.findings) == (6, ())
    produced = {TP: {0: ("a", "bc"), 3: ("one",), 4: ("x", "x", "x"), 2: None, 5: None, 6: None}}
    pieces, dead = (
        delta_pieces(str(tmp_path / "table")),
        [read_dead(words_pipeline.sink, words_pipeline.dead_letters, HOUR)],
    )
    assert check(produced, pieces, dead, [receipt], "word", metadata).ok


@pytest.mark.usefixtures("words")
def test_the_rules_of_a_schema_hold_for_any_format(tmp_path: Path) -> None:
    """A row that breaks a rule makes its whole message a dead letter of the stage `rules`.

    The table has none of the message's rows.
    """
    (tmp_path / "rules.py").write_text(RULES)
    words_pipeline = pipeline(tmp_path, [b"a B c", b"d e", b"F G"], schema="rules.py:Word")
    counts = run(words_pipeline, HOUR, Request("r")).committed.receipt.counts
    assert look(tmp_path) == [(1, 0, "d", 1), (1, 1, "e", 1)]
    assert (counts.valid, counts.rows, counts.dead) == (1, 2, 2)
    dead = read_dead(words_pipeline.sink, words_pipeline.dead_letters, HOUR)
    assert (dead["_offset"].to_pylist(), set(dead["stage"].to_pylist())) == ([0, 2], {"rules"})
    assert set(dead["reason"].to_pylist()) == {"check:word:str_matches"}


@pytest.mark.usefixtures("words")
def test_a_schema_that_is_not_the_formats(tmp_path: Path) -> None:
    """A model whose columns differ from the decoder's raises SpecError before anything is read.

    The error names the differences.
    """
    (tmp_path / "rules.py").write_text(
        RULES.replace("letters: pl.Int32", "length: pl.Int32").replace("pl.String =", "pl.Int64 =")
    )
    with pytest.raises(SpecError) as refused:
        pipeline(tmp_path, [], schema="rules.py:Word")
    assert (
        "length: missing; letters: int32, not in the schema; word: string, by the schema int64"
        in refused.value.message
    )


@pytest.mark.usefixtures("words")
def test_the_options_are_the_formats_own(tmp_path: Path) -> None:
    """An option of another format is an unknown key. The JSON schema for editors says the same."""
    with pytest.raises(
        SpecError,
        match=(
            r"decode.unknown: unknown key; known are format, schema, key, fields_include, headers,"
            r" codecs, most"
        ),
    ):
        parse_spec(attributes(tmp_path, unknown="dead"), tmp_path)
    with pytest.raises(SpecError, match=r"decode.most: must be a valid integer"):
        parse_spec(attributes(tmp_path, most="few"), tmp_path)
    schema = Draft202012Validator(Attributes.model_json_schema())

    def mistakes(**decode: Any) -> list[tuple[str, str]]:
        written = {**attributes(tmp_path), "window": {"grid": "batch"}, "decode": decode}
        return [
            (".".join(map(str, e.absolute_path)), e.message) for e in schema.iter_errors(written)
        ]

    assert mistakes(format="words", most=5) == []
    assert mistakes(format="words", most="{{ env.MOST }}") == []
    assert mistakes(format="json", schema="a.b:C", unknown="dead") == []
    assert mistakes(schema="a.b:C") == []
    assert mistakes(format="{{ env.FORMAT }}", schema="a.b:C") == []
    assert mistakes(format="words", unknown="dead") == [
        ("decode", "Additional properties are not allowed ('unknown' was unexpected)")
    ]
    assert mistakes(schema="a.b:C", most=5) == [
        ("decode", "Additional properties are not allowed ('most' was unexpected)")
    ]
    assert mistakes(format="xml", schema="a.b:C") == [
        ("decode.format", f"'xml' is not one of {[*FORMATS]}")
    ]


@pytest.mark.parametrize(
    ("decode", "says"),
    [
        ({"format": "xml"}, f"decode.format: there is no such format here; known are {KNOWN}"),
        (
            {"format": ["json"], "schema": "a.b:C"},
            "decode.format: there is no such format here; did you mean json?",
        ),
        (
            {"format": None, "schema": "a.b:C"},
            f"decode.format: there is no such format here; known are {KNOWN}",
        ),
        ({"format": "json"}, "decode.schema: is missing"),
        ("json", "decode: must be a mapping"),
    ],
)
def test_a_format_that_is_not_there(tmp_path: Path, decode: object, says: str) -> None:
    """An unknown format raises SpecError that suggests a similar name or lists all formats."""
    with pytest.raises(SpecError) as refused:
        parse_spec({**attributes(tmp_path), "decode": decode}, tmp_path)
    assert says in refused.value.message


@pytest.mark.parametrize("name", FORMATS)
def test_every_line_of_the_table_is_a_kind(name: str) -> None:
    """Each format has a section, and the section has the format's name."""
    section = section_at(FORMATS[name])
    assert issubclass(section, FormatSection)
    assert section.model_fields["format"].default == name


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"string", "raw"}))
def test_every_format_with_timestamps_is_told_what_becomes_of_finer_ones(name: str) -> None:
    """The spec's setting for finer timestamps reaches the columns of each format."""
    needed = {
        "schema": "a.py:A",
        "descriptor": "a.proto",
        "message": "A",
        "writer_schema": "a.avsc",
    }
    section = section_at(FORMATS[name])
    known_keys = {field.alias or key for key, field in section.model_fields.items()}
    parsed_section = section.model_validate(
        {"finer": "dead"} | {key: value for key, value in needed.items() if key in known_keys}
    )
    assert parsed_section.part.of(Columns(())).finer == "dead"
