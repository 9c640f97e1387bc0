"""Tests of FLINK.md: its settings, modules, commands and names exist, and it has all of
Flink's options.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from tests.config.test_settings import FIELDS
from tests.shape.sources import PACKAGES, modules
from windrow.ingest.cli.main import app
from windrow.ingest.model.metadata_columns import METADATA

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "FLINK.md").read_text(encoding="utf-8")
SETTING = re.compile(r"(source|window|decode|limits|sink|metadata|state|id)(\.[a-z_-]+)*")
OPTIONS = """
connector topic topic-pattern properties.bootstrap.servers properties.group.id properties.* format value.format key.format key.fields
key.fields-prefix value.fields-include scan.startup.mode scan.startup.specific-offsets scan.startup.timestamp-millis scan.bounded.mode
scan.bounded.specific-offsets scan.bounded.timestamp-millis scan.topic-partition-discovery.interval scan.parallelism
sink.delivery-guarantee sink.transactional-id-prefix sink.transaction-naming-strategy sink.partitioner sink.parallelism
sink.buffer-flush.max-rows sink.buffer-flush.interval
"""  # noqa: E501
"""The options of a Flink table with `'connector' = 'kafka'`, which a user may want to convert."""

HEADS = ("Flink", "Flink's committer")
FLIP_27 = (
    "split assignment",
    "threading model",
    "checkpoint",
    "failover",
    "watermark alignment",
    "split discovery",
    "metrics",
)
"""Parts of Flink's source that are no classes."""


def rows() -> list[list[str]]:
    """Returns the cells of each row of all tables, without the table heads."""
    lines = [
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in TEXT.splitlines()
        if line.startswith("|")
    ]
    return [cells for cells in lines if set("".join(cells)) - {"-"} and cells[0] not in HEADS]


def spans(text: str) -> list[str]:
    """Returns the texts in code formatting."""
    return re.findall(r"`([^`]+)`", text)


def sources() -> str:
    """Returns all code of the three packages."""
    return "\n".join(path.read_text(encoding="utf-8") for path in modules(*PACKAGES))


def exists(setting: str) -> bool:
    """Returns whether a spec has this setting, or this section."""
    section, _, name = setting.partition(".")
    if section == "metadata" and name:
        return name in METADATA
    return any(field == setting or field.startswith(f"{setting}.") for field in FIELDS)


def command_mistake(span: str) -> str | None:
    """Returns the word of a `windrow ...` command that doesn't exist, or None."""
    command: Any = get_command(app)  # a click command or group
    for word in span.split()[1:]:
        if word.startswith("--"):
            if not any(word in parameter.opts for parameter in command.params):
                return word
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return word
            command = command.commands[word]
    return None


def test_every_row_has_three_cells() -> None:
    """Each row has Flink's word, windrow's word, and an explanation. A missing feature
    has a reason.
    """
    table_rows = rows()
    assert len(table_rows) > 80
    assert [cells for cells in table_rows if len(cells) != 3 or not cells[0] or not cells[1]] == []
    assert [cells for cells in table_rows if cells[1] == "none" and not cells[2]] == []


def test_every_option_stands_there() -> None:
    """Each option of Flink's table connector is in the first column of a row."""
    firsts = {span for cells in rows() for span in spans(cells[0])}
    assert [option for option in OPTIONS.split() if option not in firsts] == []


def test_every_part_of_a_source_stands_there() -> None:
    """Each part of Flink's source that is no class is in the first column of a row."""
    firsts = [cells[0] for cells in rows()]
    assert [part for part in FLIP_27 if not any(part in first for first in firsts)] == []


def test_what_windrow_has_is_there() -> None:
    """Each setting, path, command and name in the second column exists."""
    code, bad_spans = sources(), []
    for span in (span for cells in rows() for span in spans(cells[1])):
        name = span.partition(":")[0]
        if SETTING.fullmatch(name):
            good = exists(name)
        elif span.startswith("windrow "):
            good = command_mistake(span) is None
        elif "/" in span:
            good = (ROOT / span).exists()
        else:
            good = re.search(rf"\b{re.escape(span)}\b", code) is not None
        bad_spans += [] if good else [span]
    assert bad_spans == []


def test_what_the_reasons_name_is_there() -> None:
    """Settings of a section, paths and commands elsewhere in the page exist too."""
    reasons = [span for cells in rows() for span in spans(cells[2])]
    assert [
        s
        for s in reasons
        if re.fullmatch(r"(source|window|decode|limits|metadata)\.[a-z_.-]+", s) and not exists(s)
    ] == []
    assert [s for s in reasons if s.startswith("windrow ") and command_mistake(s) is not None] == []
    assert [
        s
        for s in spans(TEXT)
        if re.match(r"(ingest|assets|resources)/", s) and not (ROOT / s).exists()
    ] == []


def test_the_page_travels_and_is_found() -> None:
    """FLINK.md is in the source distribution, and the README links to it."""
    assert '"FLINK.md"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "(FLINK.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
