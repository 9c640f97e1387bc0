"""Kinds of other distributions work like windrow's own, and can't replace them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from tests.docs import settings as docs
from tests.settings.distributions import Site
from windrow.assets.component import Attributes
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.formats.kinds import FORMATS
from windrow.ingest.lookups.kinds import SOURCES
from windrow.ingest.runner.spark.cluster import own_code
from windrow.ingest.settings import kinds
from windrow.ingest.sinks.kinds import KINDS
from windrow.ingest.transform.kinds import STEPS

ATTRIBUTES: dict[str, Any] = {
    "id": "orders",
    "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "t"},
    "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
    "decode": {"schema": "a.b:C"},
    "sink": {"path": "lake"},
}
ACME = """\
from typing import Literal

from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.sinks.kind import SinkSection
from windrow.ingest.transform.kind import StepSection


class Lines(FormatSection):
    format: Literal["acme-lines"] = "acme-lines"
    most: int = 7

    def decoder(self, folder):
        raise NotImplementedError


class Bare(SinkSection):
    kind: Literal["bare"]


class Vault(SinkSection):
    kind: Literal["acme-vault"]
    box: str

    def make(self, rows, metadata, folder):
        return {}[self.box]

    def dead_letters(self, folder):
        raise NotImplementedError


class Mask(StepSection):
    mask: str

    def transform(self, place):
        raise NotImplementedError


class Book(SourceSection):
    book: str

    def source(self, folder):
        raise NotImplementedError


class BareFormat(FormatSection):
    format: Literal["bare"]


class BareStep(StepSection):
    bare: str


class BareSource(SourceSection):
    bare: str
"""
ENTRIES = {
    "formats": {"acme-lines": "acme:Lines"},
    "sinks": {"acme-vault": "acme:Vault"},
    "steps": {"mask": "acme:Mask"},
    "lookups": {"book": "acme:Book"},
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder into which distributions are installed. Their modules are forgotten afterwards."""
    for module in ("acme", "other"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(kinds, "LOADED", {})
    return Site(tmp_path / "site", monkeypatch)


def spec(**sections: object) -> PipelineSpec:
    return parse_spec({**ATTRIBUTES, **sections}, Path("/tmp"))


def refused(**sections: object) -> str:
    with pytest.raises(SpecError) as caught:
        spec(**sections)
    return str(caught.value)


def lookup(source: Mapping[str, str]) -> dict[str, Any]:
    step = {"lookup": "names", "key": {"id": "id"}, "take": {"name": "name"}, "from": source}
    return {"steps": [step]}


def schema_mistakes(**sections: object) -> list[str]:
    """Returns the faults that the JSON schema for editors finds."""
    errors = Draft202012Validator(Attributes.model_json_schema()).iter_errors(
        {**ATTRIBUTES, **sections}
    )
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def test_a_plugin_is_a_kind_like_any(site: Site) -> None:
    """A plugin's format, sink, step and source are read by their own models.

    Errors list them among the known kinds, and editors get their options.
    """
    site.install("acme-kinds", {"acme": ACME}, **ENTRIES)
    sections: dict[str, Any] = {
        "decode": {"format": "acme-lines", "most": "{{ env.MOST }}"},
        "sink": {"kind": "acme-vault", "box": "7"},
        "transform": {"steps": [{"mask": "id"}, *lookup({"book": "b"})["steps"]]},
    }
    assert schema_mistakes(**sections) == []
    sections["decode"] = {"format": "acme-lines", "most": 9}
    read = spec(**sections)
    assert (read.decode.most, read.sink.box) == (9, "7")  # type: ignore[attr-defined]
    assert read.transform is not None
    assert [type(step).__name__ for step in read.transform.steps] == ["Mask", "LookupStepSection"]
    assert read.transform.steps[1].from_.book == "b"  # type: ignore[attr-defined]
    assert type(read.sink).__name__ == "Vault"
    known_kinds = ", ".join([*KINDS, "acme-vault"])
    assert f"sink.kind: there is no such kind here; known are {known_kinds}" in refused(
        sink={"kind": 7}
    )
    assert "did you mean acme-lines?" in refused(decode={"format": "acme-line"})
    assert "sink.bix: unknown key; did you mean box?" in refused(
        sink={"kind": "acme-vault", "bix": 1}
    )
    assert f"must say one of {', '.join([*STEPS, 'mask'])}" in refused(
        transform={"steps": [{"musk": 1}]}
    )
    assert f"must say one of {', '.join([*SOURCES, 'book'])}" in refused(
        transform=lookup({"path": "x"})
    )
    assert schema_mistakes(decode={"format": "acme-lines", "most": []}) != []


def test_a_bug_of_a_plugin_is_not_windrows(site: Site) -> None:
    """The error about a plugin's bug has the plugin and the line, and not the exception's text."""
    site.install("acme-kinds", {"acme": ACME}, **ENTRIES)
    vault = spec(sink={"kind": "acme-vault", "box": "hush"}).sink
    with pytest.raises(KeyError) as raised:
        vault.make(pa.schema([]), {}, Path("/tmp"))
    message = str(BugError.of(raised.value, "setup"))
    assert message.startswith("KeyError: this is a bug in the plugin acme-kinds, at acme:")
    assert "hush" not in message
    with pytest.raises(KeyError) as raised:
        dict[str, int]()["hush"]
    assert "a bug in windrow, at tests." in str(BugError.of(raised.value, "setup"))


def test_the_settings_page_is_of_windrows_own(site: Site) -> None:
    """The page of all settings doesn't depend on installed plugins."""
    page_before = docs.page()
    site.install("acme-kinds", {"acme": ACME}, **ENTRIES)
    assert docs.page() == page_before


def test_workers_must_have_the_plugins_that_a_spec_uses(site: Site) -> None:
    """A spec that uses a plugin requires its distribution on workers, in the driver's version."""
    site.install("acme-kinds", {"acme": ACME}, **ENTRIES)
    spec(sink={"kind": "acme-vault", "box": "7"})
    assert own_code().versions["acme-kinds"] == "1.0"


def test_names_of_windrows_own_are_not_taken(site: Site) -> None:
    """An entry point with the name of one of windrow's kinds is never loaded."""
    names = {
        "formats": dict.fromkeys(FORMATS, "no_such_module:A"),
        "sinks": dict.fromkeys(KINDS, "no_such_module:A"),
        "steps": dict.fromkeys(STEPS, "no_such_module:A"),
        "lookups": dict.fromkeys(SOURCES, "no_such_module:A"),
    }
    plain = Attributes.model_json_schema()
    site.install("acme-thief", {}, **names)
    spec(transform={"steps": [{"sql": "SELECT * FROM rows"}]})
    nested = {"kind": "routes", "by": "topic", "tables": [], "other": {"kind": "kafka"}}
    assert "sink.other.kind: there is no such kind here" in refused(sink=nested)
    assert Attributes.model_json_schema() == plain


BROKEN = {
    "import no_such_module": "can't be loaded (ModuleNotFoundError: No module named 'no_such_",
    "A = (": "can't be loaded (SyntaxError: ",
    "raise SystemExit('bye')": "can't be loaded (SystemExit: bye)",
    "B = 7": "can't be loaded (AttributeError: module 'acme_broken",
    "A = 7": "is no kind: it must be a windrow.ingest.",
    "class A: pass": "is no kind: it must be a windrow.ingest.",
}


def test_a_broken_plugin_is_told_where_it_is_used(site: Site) -> None:
    """A broken plugin raises SpecError only in specs that use it.

    The error has the setting, the entry point, the distribution and the cause. Other specs and
    their JSON schema are unaffected.
    """
    modules = {f"acme_broken_{n}": text for n, text in enumerate(BROKEN)}
    entries = {f"broken-{n}": f"acme_broken_{n}:A" for n in range(len(BROKEN))}
    site.install("acme-other", modules, **dict.fromkeys(ENTRIES, entries))
    spec()
    assert schema_mistakes() == []
    assert schema_mistakes(sink={"kind": "broken-0", "whatever": 1}) == []
    for name, says in zip(entries, BROKEN.values(), strict=True):
        used: dict[str, tuple[str, dict[str, Any]]] = {
            "formats": ("decode.format", {"decode": {"format": name}}),
            "sinks": ("sink.kind", {"sink": {"kind": name}}),
            "steps": ("transform.steps.0", {"transform": {"steps": [{name: 1}]}}),
            "lookups": ("transform.steps.0.from", {"transform": lookup({name: "x"})}),
        }
        for group, (setting, sections) in used.items():
            assert (
                f"{setting}: the plugin {name} (entry point of windrow.{group}, from acme-other"
                f" 1.0) {says}" in refused(**sections)
            )


def test_a_kind_needs_its_methods(site: Site) -> None:
    """A plugin's kind without the needed methods is refused."""
    names = {"formats": "Format", "steps": "Step", "lookups": "Source", "sinks": ""}
    site.install(
        "acme-kinds", {"acme": ACME}, **{g: {"bare": f"acme:Bare{n}"} for g, n in names.items()}
    )
    assert "sinks.kind.SinkSection, with make and dead_letters" in refused(sink={"kind": "bare"})
    assert "formats.kind.FormatSection, with decoder" in refused(decode={"format": "bare"})
    assert "transform.kind.StepSection, with transform" in refused(
        transform={"steps": [{"bare": "x"}]}
    )
    assert "lookups.kind.SourceSection, with source" in refused(transform=lookup({"bare": "x"}))


def test_two_of_one_name_are_refused_where_it_is_used(site: Site) -> None:
    """Two plugins of one name are refused where the name is used, with both distributions."""
    site.install("acme-kinds", {"acme": ACME}, sinks={"vault": "acme:Vault"})
    site.install("acme-other", {}, sinks={"vault": "other:Vault"})
    spec()
    assert (
        "sink.kind: the plugin vault (entry point of windrow.sinks, from acme-kinds 1.0, acme-other"
        " 1.0) is there more than once: uninstall all but one of them"
    ) in refused(sink={"kind": "vault", "box": "7"})


def test_a_name_that_dagster_would_refuse(site: Site) -> None:
    """A kind's name that Dagster would refuse as a tag is refused."""
    site.install("acme-kinds", {"acme": ACME}, sinks={"my vault": "acme:Vault"})
    assert "must have a name of at most 60 letters" in refused(sink={"kind": "my vault"})


def test_without_plugins_none_is_looked_for() -> None:
    """A spec of windrow's own kinds reads no entry points."""
    script = (
        "import importlib.metadata, pathlib;from windrow.ingest.config.load import parse_spec;"
        "importlib.metadata.entry_points = None;"
        f"parse_spec({ATTRIBUTES!r} | {{'transform':"
        " {'steps': [{'sql': 'SELECT 1'}]}}, pathlib.Path('/tmp'))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
