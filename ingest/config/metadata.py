"""The `metadata` section: which metadata columns a table has, and their names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from windrow.ingest.model.metadata_columns import DEFAULT, METADATA
from windrow.ingest.settings.document import SettingPath, suggest
from windrow.ingest.settings.values import refuse, sentence

METADATA_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in METADATA},
    "additionalProperties": False,
}


_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def checked_metadata(value: object) -> Mapping[str, str]:
    """Validates the section and adds the defaults, in the order of `METADATA`."""
    if not isinstance(value, Mapping):
        raise sentence("must be a mapping")
    wrong: list[tuple[SettingPath, str]] = [
        ((str(name),), f"unknown key{suggest(str(name), tuple(METADATA))}")
        for name in value
        if name not in METADATA
    ]
    written = {
        name: None if column == "none" else column
        for name, column in value.items()
        if name in METADATA
    }
    wrong += [
        ((name,), what)
        for name, column in written.items()
        if (what := _column_mistake(name, column)) is not None
    ]
    whole = {**DEFAULT, **written}
    found = {name: str(whole[name]) for name in METADATA if whole.get(name) is not None}
    seen: dict[str, str] = {}
    for name, column in found.items():
        other = seen.setdefault(column.casefold(), name)
        if other != name:
            own = name if name in written else other
            wrong.append(
                (
                    (own,),
                    (
                        f"{other} and {name} would both be column {column}, and tables don't tell"
                        " case apart"
                    ),
                )
            )
    if wrong:
        refuse(wrong)
    return found


def _column_mistake(name: str, column: object) -> str | None:
    if column is None:
        needed = METADATA[name].needed
        return None if needed is None else f"can't be left out: {needed}"
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        return (
            "must be a column name, up to 128 of a-z A-Z 0-9 _ and no digit first, or none to leave"
            " it out"
        )
    return None
