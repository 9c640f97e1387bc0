"""Which columns of a schema come from one part of the messages, their key or their value, and what that part calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.ingest.errors import SpecError

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns, Finer


@dataclass(frozen=True)
class Part:
    """Some columns of a schema.

    `only`: these, in this order; None: all of the schema's but `without`. `prefix`: what the schema puts before the names that they have in
    the messages. `place`: the setting that chose them, for people. `finer`: what becomes of their timestamps finer than a microsecond.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    prefix: str = ""
    place: str = "decode.schema"
    finer: Finer = "truncate"

    def of(self, whole: Columns) -> Columns:
        """These columns by the names that they have in the messages.

        Raises:
            SpecError: the schema doesn't have them, or none is left.
        """
        if (self.only, self.without, self.prefix) == (None, (), ""):
            return replace(whole, finer=self.finer)
        by_name = {column.name: column for column in whole.columns}
        missing = [name for name in (*(self.only or ()), *self.without) if name not in by_name]
        if missing:
            what = f"{self.place} names {', '.join(missing)}, which the schema hasn't: it has {', '.join(by_name)}"
            raise SpecError(what, "spec", "Name columns of the schema, or add them to it; nothing was read.")
        names = [name for name in by_name if name not in self.without] if self.only is None else self.only
        if not names:
            what = f"{self.place}: no column of the schema is left for it: all of them come from somewhere else"
            raise SpecError(what, "spec", "Add a column to the schema; nothing was read.")
        columns = tuple(replace(by_name[n], name=n.removeprefix(self.prefix)) for n in names)
        return replace(whole, columns=columns, constraints=(), finer=self.finer)


WHOLE = Part()
"""All columns, by their own names."""
