"""Names of Flink and Connect: the pages have them, and a setting of such a name is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shape.test_flink_table import SETTING, exists
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.observer import FIGURES
from windrow.ingest.settings.document import suggest
from windrow.ingest.settings.foreign_names import CONNECT, FLINK, foreign_meaning

ROOT = Path(__file__).parents[2]
PAGES = {"FLINK.md": FLINK, "docs/connect.md": CONNECT}
SPEC = {
    "id": "names",
    "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "t"},
    "window": {"grid": "batch"},
    "decode": {"schema": "schema.py:Row"},
    "sink": {"path": "data"},
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_each_name(page: str) -> None:
    """Each name begins a row of its page, whose second cell has what there is instead."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    cells = [line[1:-1].split("|") for line in lines if line.startswith("|")]
    missing = [
        name
        for name, (instead, _) in PAGES[page].items()
        if not any(
            f"`{name}`" in row[0] and (f"`{instead}`" in row[1] if instead else "none" in row[1])
            for row in cells
        )
    ]
    assert missing == []


def test_what_there_is_instead_exists() -> None:
    """Settings and figures that take the place of names exist."""
    instead = [name for names in PAGES.values() for name, _ in names.values() if name]
    assert [
        name
        for name in instead
        if not (
            exists(name.partition(":")[0])
            if SETTING.fullmatch(name.partition(":")[0])
            else name in FIGURES
            or re.match(r"windrow |(transform|dagster|state|dead_letters)\b", name)
        )
    ] == []


def test_a_setting_of_such_a_name_is_refused() -> None:
    """The message has the sentence of the name instead of the known keys."""
    for name in (*FLINK, *CONNECT):
        assert suggest(name, ("topic",)) == f"; {foreign_meaning(name)}"
    assert suggest("topics", ("topic",)) == "; did you mean topic?"


@pytest.mark.parametrize(
    ("section", "name", "sentence"),
    [
        ("source", "scan.startup.mode", "here it is source.start"),
        ("decode", "json.ignore-parse-errors", "here it is limits.max_dead_ratio"),
        ("sink", "sink.delivery-guarantee", "here it is sink.delivery_guarantee"),
        ("window", "scan.watermark.alignment.group", "it has no counterpart here"),
        ("", "errors.tolerance", "a name of Connect's"),
    ],
)
def test_specs(tmp_path: Path, section: str, name: str, sentence: str) -> None:
    """A spec with such a name says what it is here."""
    attributes: dict[str, object] = {**SPEC, name: "x"}
    if section:
        attributes = {**SPEC, section: {**SPEC[section], name: "x"}}  # type: ignore[dict-item]
    with pytest.raises(SpecError, match=sentence):
        parse_spec(attributes, tmp_path)
