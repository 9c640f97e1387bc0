"""Writer's schema as a spec gives it: its text, or the name of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.schema import AvroSchema, parse_schema


@dataclass(frozen=True)
class GivenSchema:
    """Writer's schema of a spec, not parsed yet.

    - `written`: the schema's JSON text, or the name of a file that holds it, relative to
      `folder`.
    - `setting`: the spec's setting that gives it, for error messages.

    A file is read each time the schema is needed. Pickled, the schema has the file's text: a
    worker may run on a machine that doesn't have the file.
    """

    written: str
    folder: Path
    setting: str = "decode.writer_schema"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the schema with the text that its file has now."""
        with_text = self.now()
        return GivenSchema, (with_text.written, self.folder, with_text.setting)

    def now(self) -> Self:
        """Returns this schema with the text that its file has now."""
        if self.written.lstrip().startswith(("{", "[")):
            return self
        path = self.folder / self.written
        try:
            return replace(self, written=path.read_text(encoding="utf-8"), setting=self.written)
        except (OSError, UnicodeDecodeError) as error:
            what = (
                f"The Avro schema {path} can't be read:"
                f" {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}"
            )
            raise SpecError(
                what,
                "spec",
                "Name a file, relative to the spec, or write the schema into the spec.",
            ) from error

    def parsed(self) -> AvroSchema:
        """Parses the schema.

        Raises:
            SpecError: the file can't be read, or holds no Avro schema.
        """
        with_text = self.now()
        return parse_schema(with_text.written, with_text.setting)
