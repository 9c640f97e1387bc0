"""Writer's schema in the form of a spec: its text, or the name of a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.schema import AvroSchema, parse_schema


@dataclass(frozen=True)
class GivenSchema:
    """Writer's schema of a spec, not parsed yet.

    Attributes:
        written: the schema's JSON text, or the name of its file relative to `folder`.
        folder: the spec's folder.
        setting: the setting or file that has the schema, for errors.
        pickled: the file's text if this value was unpickled. A worker may run on a machine
            without the file, so pickling reads it. If None, the file is read each time the
            schema is needed.
    """

    written: str
    folder: Path
    setting: str = "decode.writer_schema"
    pickled: str | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the schema with the text that its file has now."""
        return GivenSchema, (
            self.written,
            self.folder,
            self.setting,
            self._text() if self._is_file else None,
        )

    def now(self) -> Self:
        """Returns this schema with the text that its file has now."""
        return replace(self, written=self._text(), setting=self.written) if self._is_file else self

    def parse(self) -> AvroSchema:
        """Parses the schema.

        Raises:
            SpecError: the file can't be read, or has no Avro schema.
        """
        with_text = self.now()
        return parse_schema(with_text.written, with_text.setting)

    @property
    def _is_file(self) -> bool:
        return not self.written.lstrip().startswith(("{", "["))

    def _text(self) -> str:
        if self.pickled is not None:
            return self.pickled
        path = self.folder / self.written
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"The Avro schema {path} can't be read:"
                f" {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}",
                "spec",
                "Name a file, relative to the spec, or write the schema into the spec.",
            ) from error
