"""Settings of a `sql` step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from windrow.ingest.settings.values import Text
from windrow.ingest.transform.kind import StepPlace, StepSection

if TYPE_CHECKING:
    from windrow.ingest.ports.transform import Transform


class SqlSection(StepSection):
    """One SELECT over the rows."""

    sql: Text = Field(
        description=(
            "One SELECT over `rows`, in DuckDB's dialect: columns, a WHERE, `unnest`. What becomes"
            " of a row depends on this row alone."
        )
    )

    def transform(self, place: StepPlace) -> Transform:
        from windrow.ingest.transform.sql.step import Sql  # loads DuckDB

        return Sql(
            self.sql,
            place.setting,
            tuple(place.metadata.items()),
            place.primary_key,
            place.versioned,
            one_each=place.behind_spark,
        )
