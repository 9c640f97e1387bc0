"""Settings of a `spark` step."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windrow.ingest.settings.values import Default, FunctionName, SchemaReference
from windrow.ingest.transform.kind import StepSection


class SparkSection(StepSection):
    """A function of Spark DataFrames. A pipeline has at most one such step.

    The function gets all rows of a window at once, so the step makes no `Transform`.
    `runner.dataframe_transform` calls the function.
    """

    keeps_unavailable = False

    spark: FunctionName = Field(
        description=(
            "Called with a DataFrame of all rows of a window, with the metadata columns; gives back"
            " a DataFrame, each of whose rows keeps the metadata columns of a message that it comes"
            " from. There is at most one such step."
        )
    )
    schema_: Annotated[
        SchemaReference | None,
        Default("`transform.schema` of the last step; of others the columns that come to it"),
    ] = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules its rows have."
        ),
    )

    @property
    def is_repeatable(self) -> bool:
        return False
