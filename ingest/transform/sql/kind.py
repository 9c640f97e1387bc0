"""Settings of a `sql` step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from windrow.ingest.settings.values import Text
from windrow.ingest.transform.kind import StepContext, StepSection

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

    def transform(self, context: StepContext) -> Transform:
        from windrow.ingest.transform.sql.step import Sql  # imported here: it loads DuckDB

        return Sql(
            self.sql,
            context.setting_path,
            tuple(context.metadata.items()),
            context.primary_key,
            context.versioned,
            one_each=context.behind_spark,
        )
