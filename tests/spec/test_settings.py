"""The README's table of settings is the spec: every field, its default, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ingest.spec.metadata import METADATA, METADATA_DEFAULT
from ingest.spec.pipeline import NOT_WRITTEN, PipelineSpec

SECTION = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").partition("## Settings\n")[2].partition("\n## ")[0]
ROWS = {name: cells.split(" | ") for name, cells in re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", SECTION, re.MULTILINE)}


def models(annotation: object) -> list[type[BaseModel]]:
    """The sections in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models(part)]


def settings(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted place. A section is none itself, unless it may be written in another way."""
    for name, field in model.model_fields.items():
        here, below = f"{place}{field.alias or name}", models(field.annotation)
        if not below or field.annotation not in below:
            yield here, field
        for section in below:
            yield from settings(section, f"{here}.")


FIELDS = {name: field for name, field in settings(PipelineSpec) if name.partition(".")[0] not in NOT_WRITTEN}


def test_every_setting_is_in_the_table() -> None:
    """What can be written is described, and what is described can be written."""
    assert sorted(ROWS) == sorted(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_the_table_has_the_defaults(name: str) -> None:
    """A default stands in the table as it would be written."""
    field, (_, default, meaning) = FIELDS[name], ROWS[name]
    assert meaning
    if field.is_required():
        assert default == "required"
    elif name == "metadata":
        assert default == ", ".join(f"`{column}`" for column in METADATA_DEFAULT.values())
    elif isinstance(field.default, timedelta):
        assert default == f"`{field.default // timedelta(minutes=1)}m`"
    elif field.default is not None and name != "source.client":
        assert default.strip("`") == str(field.default)


def test_the_names_of_metadata_are_listed() -> None:
    """Each name that a column can be asked for by, in the order of the columns."""
    listed = re.search(r"^Names of `metadata`: (.+?)\. ", SECTION, re.MULTILINE)
    assert listed is not None
    assert tuple(re.findall(r"`([a-z-]+)`", listed[1])) == METADATA


def test_editors_get_the_settings() -> None:
    """The JSON schema, which Dagster's component shows, has every setting of source and window, and the forms they take."""
    schema = PipelineSpec.model_json_schema()
    for section, model in (
        ("source", "SourceSpec"),
        ("window", "WindowSpec"),
        ("source.tuning", "TuningSpec"),
        ("source.start", "StartSpec"),
    ):
        known = {name.removeprefix(f"{section}.") for name in FIELDS if re.fullmatch(rf"{section}\.[a-z_]+", name)}
        assert known <= set(schema["$defs"][model]["properties"])
    assert set(schema["properties"]["metadata"]["properties"]) == set(METADATA)
