"""Faults of plugins: the message names the plugin, its distribution and the fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour
from tests.settings.distributions import Site
from windrow.ingest.settings import kinds as kinds_module

ODD = """\
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from windrow.ingest.formats.json.kind import JsonSection
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.ports.lookup import Answers
from windrow.ingest.sinks.delta.kind import DeltaSection
from windrow.ingest.sinks.kind import SinkSection
from windrow.ingest.transform.kind import StepSection

NAMES = pa.table({"id": [0, 1], "name": ["Ann", "Bob"]})


@dataclass(frozen=True)
class Part:
    how: str
    inner: Any = None
    lock: Any = None
    is_repeatable = True
    identity = "odd"

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if name == object.__getattribute__(self, "__dict__").get("how"):
            return None if name == "columns" and not callable(found) else lambda *_: None
        return found

    def hold(self, version, tasks):
        return nullcontext(version)

    def version(self):
        return "1"

    def schema(self):
        return NAMES.schema


class Decoder(Part):
    @property
    def columns(self):
        return self.inner.columns

    def open(self):
        return lambda messages: spoilt(self.how, self.inner.open()(messages))


class Step(Part):
    def columns(self, before):
        return before

    def open(self):
        return lambda decoded, messages: spoilt(self.how, decoded)


class Source(Part):
    def open(self, version, columns):
        return lambda keys: spoilt(self.how, Answers(NAMES, 1))


def spoilt(how, answer):
    if how == "exits":
        sys.exit("secret")
    if how == "nothing":
        return None
    if how == "rows":
        return replace(answer, rows=answer.rows.to_pylist())
    if how == "reasons":
        return replace(answer, dead_reason=[])
    if how == "columns_asked":
        return replace(answer, rows=answer.rows.rename_columns(["id", "who"]))
    return answer


def part(kind, how, inner=None):
    if how == "exits_at_once":
        sys.exit("secret")
    if how == "made":
        return None
    return kind(how, inner, threading.Lock() if how == "locked" else None)


class Lines(FormatSection):
    format: Literal["odd"] = "odd"
    how: str

    def decoder(self, folder):
        plain = JsonSection.model_validate({"format": "json", "schema": self.schema_})
        return part(Decoder, self.how, plain.decoder(folder))


class Odd(StepSection):
    odd: str

    def transform(self, place):
        return part(Step, self.odd)


class Book(SourceSection):
    odd: str
    is_repeatable = True

    def source(self, folder):
        return part(Source, self.odd)


class Vault(SinkSection):
    kind: Literal["odd"]
    how: str

    def location(self, folder):
        return str(folder / "lake")

    def make(self, rows, metadata, folder):
        if self.how == "exits_at_once":
            sys.exit("secret")
        return None if self.how == "make" else self.plain().make(rows, metadata, folder)

    def dead_letters(self, folder):
        return None if self.how == "dead_letters" else self.plain().dead_letters(folder)

    def plain(self):
        return DeltaSection.model_validate({"path": "lake"})
"""
GAVE, NONE = "of the plugin acme-odd gave ", "of the plugin acme-odd gave NoneType, and "
NO_OPEN, NO_CALL = f"{NONE}nothing with a method open", f"{NONE}nothing with a method __call__"
EXIT = "SystemExit: this is a bug in the plugin acme-odd, at acme_odd:"
LOCKED = "of the plugin acme-odd can't be pickled (TypeError)"

FORMAT = "decode: {{schema: 'schema.py:Thing', format: odd, how: {how}}}"
STEP = "transform: {{steps: [{{odd: {how}}}]}}"
LOOKUP = """\
transform:
  steps:
    - lookup: names
      key: {{id: id}}
      take: {{name: name}}
      from: {{odd: {how}}}
"""
SINK = "sink: {{kind: odd, how: {how}}}"
FAULTS = [
    (FORMAT, "made", f"acme_odd.Lines {NO_OPEN}"),
    (FORMAT, "columns", f"acme_odd.Decoder {NONE}no Columns"),
    (FORMAT, "nothing", f"acme_odd.Decoder {NONE}no Decoded"),
    (FORMAT, "reasons", f"acme_odd.Decoder {GAVE}list as dead_reason, and no StringArray"),
    (FORMAT, "locked", f"acme_odd.Decoder {LOCKED}"),
    (FORMAT, "exits", EXIT),
    (FORMAT, "exits_at_once", EXIT),
    (STEP, "made", f"acme_odd.Odd {NO_OPEN}"),
    (STEP, "columns", f"acme_odd.Step {NONE}no Columns"),
    (STEP, "open", f"acme_odd.Step {NO_CALL}"),
    (STEP, "nothing", f"acme_odd.Step {NONE}no Decoded"),
    (STEP, "rows", f"acme_odd.Step {GAVE}list as rows, and no RecordBatch"),
    (STEP, "locked", f"acme_odd.Step {LOCKED}"),
    (STEP, "exits", EXIT),
    (LOOKUP, "made", f"acme_odd.Book {NO_OPEN}"),
    (LOOKUP, "version", f"acme_odd.Source {NONE}no str"),
    (LOOKUP, "schema", f"acme_odd.Source {NONE}no Schema"),
    (LOOKUP, "nothing", f"acme_odd.Source {NONE}no Answers"),
    (LOOKUP, "rows", f"acme_odd.Source {GAVE}list as rows, and no Table"),
    (LOOKUP, "columns_asked", f"acme_odd.Source {GAVE}rows without the columns asked for: id, nam"),
    (LOOKUP, "locked", f"acme_odd.Source {LOCKED}"),
    (LOOKUP, "exits", EXIT),
    (SINK, "make", f"acme_odd.Vault {NONE}nothing with a method stager"),
    (SINK, "dead_letters", f"acme_odd.Vault {NONE}nothing with a method stager"),
    (SINK, "exits_at_once", EXIT),
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution whose kinds have the fault that their option `how` or `odd` names."""
    monkeypatch.delitem(sys.modules, "acme_odd", raising=False)
    monkeypatch.setattr(kinds_module, "LOADED", {})
    kinds = {"formats": "Lines", "steps": "Odd", "lookups": "Book", "sinks": "Vault"}
    entries = {group: {"odd": f"acme_odd:{kind}"} for group, kind in kinds.items()}
    Site(tmp_path / "site", monkeypatch).install("acme-odd", {"acme_odd": ODD}, **entries)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("section", "fault", "says"), FAULTS, ids=[f"{f[0].split(':')[0]}-{f[1]}" for f in FAULTS]
)
def test_a_fault_of_a_plugin_is_its_own(stage: Stage, section: str, fault: str, says: str) -> None:
    """A plugin's wrong result, a part that can't be pickled, or `sys.exit` is reported as its
    fault.

    The plugin's own texts are left out, and nothing is committed. Without the fault the window
    is committed.
    """
    spec, name = Path(stage.spec), section.partition(":")[0]
    others = [line for line in spec.read_text().splitlines() if not line.startswith(f"{name}:")]
    window = "--window", f"{hour(0)}/{hour(2)}"
    spec.write_text("\n".join([*others, section.format(how=fault), ""]))
    result = stage.call("run", stage.spec, *window)
    assert result.exit_code == 70, result.output
    assert says in result.stderr
    assert "secret" not in result.output
    assert "bug in windrow" not in result.stderr
    spec.write_text("\n".join([*others, section.format(how="not"), ""]))
    assert len(stage.json("run", stage.spec, *window)["windows"]) == 2
