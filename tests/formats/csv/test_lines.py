"""The grammar of a line is the standard library's, with the exceptions that `Lines` documents."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from windrow.ingest.formats.csv.lines import Dialect, Lines
from windrow.ingest.formats.shared.refusal import RefusedValueError

DIALECTS = [
    Dialect(),
    Dialect(escape="\\"),
    Dialect(";", "'", "\\"),
    Dialect("\t", None),
    Dialect("|", None, "\\"),
    Dialect("^", "]", "-"),
    Dialect(".", "*", "$"),
]


def ours(text: str, dialect: Dialect) -> list[str] | None:
    """Returns the fields; None for a line that is refused."""
    try:
        return [piece.text for piece in Lines(dialect).pieces(text, 1000)]
    except RefusedValueError:
        return None


def read_by_library(text: str, dialect: Dialect) -> list[str] | None:
    """Returns the fields that the standard library reads from this one line.

    After an escaped line break the library waits for another line, so it gets an empty one.
    """
    quoting = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    reader = csv.reader(
        [text, "\n"],
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        quoting=quoting,
        strict=True,
    )
    try:
        rows = list(reader)
    except csv.Error:
        return None
    return rows[0] or [""]


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@settings(max_examples=examples(2000))
@given(data=st.data())
def test_a_line_is_what_the_standard_library_makes_of_it(
    dialect: Dialect, data: st.DataObject
) -> None:
    """Windrow and the standard library read the same fields, with two exceptions.

    1. The library keeps some letters after an escape that have a meaning in windrow.
    2. The library alone takes some line breaks, and lines that end with an escape.
    """
    special = [c for c in (dialect.delimiter, dialect.quote, dialect.escape) if c]
    text = data.draw(
        st.text(
            st.sampled_from([*special, "a", "\n", "\r", '"'])
            | st.characters(codec="utf-8", exclude_characters="0bfnrtvZ"),
            max_size=12,
        )
    )
    windrow_fields, library = ours(text, dialect), read_by_library(text, dialect)
    if windrow_fields is not None:
        assert windrow_fields == library
    elif library is not None:
        assert {"\r", "\n"} & {*text} or text.endswith(str(dialect.escape))


@pytest.mark.parametrize("end", ["\n", "\r", "\nb"])
@pytest.mark.parametrize("newline", ["", "\n", "\r\n"])
def test_an_escaped_line_break_in_the_last_field(end: str, newline: str) -> None:
    """An escaped line break is a part of the last field, and the line may end after it."""
    text, dialect = f"a^-{end}{newline}", Dialect("^", "]", "-")
    assert ours(text, dialect) == read_by_library(text, dialect) == ["a", end]


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@settings(max_examples=examples(300))
@given(data=st.data())
def test_what_is_written_is_read(dialect: Dialect, data: st.DataObject) -> None:
    """Fields of any text survive writing and reading, in quotes or with escapes."""
    fields = data.draw(st.lists(st.text(max_size=6), min_size=1, max_size=5))
    if dialect.quote is None:
        fields = [field.replace("\r", "").replace("\n", "") for field in fields]
    if dialect.quote is None and dialect.escape is None:
        fields = [field.replace(dialect.delimiter, "") for field in fields]
    assert ours(written(fields, dialect), dialect) == fields


def written(fields: list[str], dialect: Dialect) -> str:
    """Returns a line with these fields."""
    escaped = [
        field.replace(dialect.escape, dialect.escape * 2) if dialect.escape else field
        for field in fields
    ]
    if dialect.quote is not None:
        return dialect.delimiter.join(
            f"{dialect.quote}{f.replace(dialect.quote, dialect.quote * 2)}{dialect.quote}"
            for f in escaped
        )
    return dialect.delimiter.join(
        f.replace(dialect.delimiter, f"{dialect.escape or ''}{dialect.delimiter}") for f in escaped
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('a,"b', "a quote that is never closed in the field that begins at character 2"),
        (
            'a,"b"c',
            (
                "something other than a delimiter behind a closing quote in the field that begins"
                " at character 2"
            ),
        ),
        (
            "a\nb",
            (
                "a line break, or an escape with nothing behind it in the field that begins"
                " at character 0"
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_line(text: str, detail: str) -> None:
    """The error says where the faulty field begins, and never shows the field's text."""
    with pytest.raises(RefusedValueError) as refused:
        Lines(Dialect()).pieces(text, 5)
    assert (refused.value.reason, refused.value.detail) == (
        "not_csv",
        f"CSV is malformed: {detail}",
    )


def test_fields_beyond_the_columns_are_not_looked_at() -> None:
    """A line with too many fields is refused before the surplus fields are parsed."""
    with pytest.raises(RefusedValueError, match="Expected 2 fields, got more"):
        Lines(Dialect()).pieces('a,b,"', 2)
