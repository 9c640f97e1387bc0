"""What changes decoded rows on their way to the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from windrow.ingest.ports.decoder import Decoded

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


class Transform(Protocol):
    """Rows to rows: other columns, fewer rows, several of one, or refusals.

    Picklable, and cheap to pickle, as a decoder is.
    """

    def columns(self, before: Columns) -> Columns:
        """The columns of the rows that it gives, where those of `before` come in.

        Raises:
            SpecError: it can't work on such columns; says which, and what to do.
        """

    def open(self) -> Callable[[Decoded], Decoded]:
        """What transforms, for the thread that asks, and for no longer than a split.

        What has no rows (dead letters, counts of dropped and filtered messages) passes
        through it. `Decoded.with_rows` and `Decoded.refused` keep the account of each
        message; the stage of what a transform refuses is `RULES`. What becomes of a row
        depends on the rows of its own message alone, for a batch is no unit that a user
        knows.

        Raises:
            SpecError: what it stands on can't be loaded or used; also when it is
                called, if it fails as a whole.
        """
