"""`sweep`: removes staged files that no commit names. Imported only when the command runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.settings.values import Duration


class Swept(msgspec.Struct):
    """The document of `sweep`: the files that were removed, or would be."""

    pipeline: str
    files: list[str]
    removed: bool


def sweep_files(output: Output, path: Path, older_than: str, *, yes: bool) -> None:
    """Shows staged files that no commit names, and removes them if `yes`.

    Raises:
        SpecError: the grace period isn't a duration, or is too short.
    """
    spec, grace = load_spec(path), _grace(older_than)
    files = []
    for store in assemble.open_table(spec):
        try:
            files += store.sweep(grace, dry_run=not yes)
        except ValueError as error:
            raise SpecError(
                f"--older-than {older_than}: {error}",
                "setup",
                "Give a time that is longer than any run takes.",
            ) from None
    count = format_count(len(files), "file")
    if not files:
        end = (
            f"Nothing to remove: every staged file that is older than {older_than} is named by a"
            " commit."
        )
    else:
        end = f"Removed: {count}." if yes else f"Nothing was removed; add --yes to remove {count}."
    output.show(Swept(spec.id, files, yes), *map(Text, files), Text(end))


def _grace(text: str) -> timedelta:
    try:
        return TypeAdapter(Duration).validate_python(text)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise SpecError(
            f"--older-than {text} {reason}", "setup", "Write it like 7d or 36h."
        ) from None
