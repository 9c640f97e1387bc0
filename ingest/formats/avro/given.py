"""A writer's schema as a spec gives it: its text, or a file beside the spec."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.schema import AvroSchema, parse_schema


@dataclass(frozen=True)
class GivenSchema:
    """`written`: the schema's JSON text, or the name of a file that holds it, relative
    to `folder`; `setting`: where it stands.

    Pickled, it takes its file's text along: a worker may be on a machine that has no such file.
    """

    written: str
    folder: Path
    setting: str = "decode.writer_schema"
    taken: str | None = field(default=None, compare=False, repr=False)
    """The file's text, as it was taken along; None: it is read when it is asked for."""

    def __reduce__(self) -> tuple[Any, ...]:
        """With the text that its file has now.

        Raises:
            SpecError: it can't be read.
        """
        return GivenSchema, (
            self.written,
            self.folder,
            self.setting,
            self._text() if self._is_file else None,
        )

    def now(self) -> Self:
        """The same with the text that its file has now.

        Raises:
            SpecError: it can't be read.
        """
        return replace(self, written=self._text(), setting=self.written) if self._is_file else self

    def parsed(self) -> AvroSchema:
        """The schema.

        Raises:
            SpecError: its file can't be read, or it is none.
        """
        given = self.now()
        return parse_schema(given.written, given.setting)

    @property
    def _is_file(self) -> bool:
        return not self.written.lstrip().startswith(("{", "["))

    def _text(self) -> str:
        if self.taken is not None:
            return self.taken
        path = self.folder / self.written
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = (
                f"The Avro schema {path} can't be read:"
                f" {error.strerror if isinstance(error, OSError) else 'it is no UTF-8'}"
            )
            raise SpecError(
                what, "spec", "Give a file beside the spec, or the schema itself."
            ) from error
