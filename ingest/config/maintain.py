"""The section `maintain`: how files of the table are joined, how long rows and old files stay."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from windrow.ingest.config.window import Cron
from windrow.ingest.settings.values import Default, Duration, Section, Size, Values, must

if TYPE_CHECKING:
    from windrow.ingest.ports.sink import Maintenance

LEAST_KEPT = timedelta(days=7)
"""The least time for which `windrow maintain` keeps rows, dead letters and older versions."""

_Kept = Annotated[Duration, must(lambda value: value >= LEAST_KEPT, "be at least 7d")]
"""How long something is kept: at least `LEAST_KEPT`."""


class MaintainSpec(Section):
    """The limits of `windrow maintain`, and when Dagster starts it."""

    file_size: Annotated[Size, Values("a size, `0`")] = Field(
        default=128 << 20,
        description=(
            "Files of a window that are smaller than three quarters of this size are joined, up to"
            " it (Delta, Iceberg and files); by default 128 MiB. `0`: none is."
        ),
    )
    keep_versions: _Kept = Field(
        default=LEAST_KEPT,
        description=(
            "How long older versions of a Delta table, and snapshots of an Iceberg table, can be"
            " read; at least `7d`. Branches and tags of Iceberg stay."
        ),
    )
    keep_files: Annotated[
        Duration, must(lambda value: value >= timedelta(hours=24), "be at least 24h")
    ] = Field(
        default=timedelta(days=7),
        description=(
            "How old a file must be that no commit names, and in a table of files how long a"
            " replaced one stays for its readers; at least `24h`, and longer than any run takes."
        ),
    )
    keep_rows: Annotated[_Kept | None, Values("a duration"), Default("for ever")] = Field(
        default=None,
        description=(
            "How long the rows of a window stay, from the window's end on (of a micro-batch from"
            " its last commit on); at least `7d`. For tables to which rows are only appended. The"
            " receipt stays, and `windrow replay --bring-back` reads the window again."
        ),
    )
    keep_dead_letters: Annotated[_Kept | None, Values("a duration"), Default("for ever")] = Field(
        default=None,
        description=(
            "How long dead letters of a committed window stay, from its last commit on; at least"
            " `7d`. They can't be replayed any more then; `windrow replay` reads the window again."
        ),
    )
    schedule: Annotated[Cron | None, Default("none: no job in Dagster")] = Field(
        default=None,
        description="When Dagster's job of maintenance runs, in UTC: `0 3 * * *`.",
    )

    @property
    def limits(self) -> Maintenance:
        """The limits in the form that tables need."""
        from windrow.ingest.ports.sink import Maintenance  # loads Arrow

        return Maintenance(self.keep_files, self.keep_versions, self.file_size, self.keep_rows)
