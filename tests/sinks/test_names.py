"""Names of a table's parts: two pipelines or attempts never get the same name."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.boundary import Label, label_text
from windrow.ingest.model.plan import Window
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable, note
from windrow.ingest.sinks.kit.files.staged_files import staged_path, to_safe_name, window_folder

TEXT = st.text(max_size=20) | st.sampled_from(["a", "a.b", "a_b", "a/b", 'a","b', "A", "ä"])
STARTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(TEXT, TEXT, TEXT, TEXT)
def test_notes_of_dead_letters_are_injective(a: str, b: str, c: str, d: str) -> None:
    """Two attempts never share a note, whatever their names are, and a note names its window
    and attempt.
    """
    first_window, second_window = Window(a, 1, 2), Window(c, 1, 2)
    assert (note("dead", first_window, b) == note("dead", second_window, d)) == ((a, b) == (c, d))
    assert note("dead", first_window, b) != note("published", first_window, b)
    assert (
        DeadLetterTable.window_of_note(note("dead", first_window, b), "dead"),
        DeadLetterTable.window_of_note(note("dead", first_window, b), "published"),
    ) == ((first_window.key, b), None)


@given(TEXT, TEXT)
def test_file_name_parts_are_injective_and_plain(a: str, b: str) -> None:
    """Two texts never become the same part of a name, and no part needs escaping."""
    assert (to_safe_name(a) == to_safe_name(b)) == (a == b)
    assert to_safe_name(a).replace("-", "").replace("_", "").isalnum()
    assert to_safe_name(a).isascii()


@given(STARTS | st.integers(0, 10**9))
def test_a_staged_path_needs_no_escaping(start: Label) -> None:
    """The folder of any window has a plain name."""
    assert re.fullmatch(
        r"data/[A-Za-z0-9.]+/[A-Za-z0-9_-]+\.parquet",
        staged_path(window_folder(label_text(start)), "a/1"),
    )
