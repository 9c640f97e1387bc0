"""Settings of a `spark` step."""

from __future__ import annotations

from pydantic import Field

from windrow.ingest.settings.values import FunctionName
from windrow.ingest.transform.kind import StepSection


class SparkSection(StepSection):
    """A function of Spark's DataFrames, as the last step.

    It is no transform of one message's rows: `runner.dataframe_transform` calls it.
    """

    keeps = False

    spark: FunctionName = Field(
        description=(
            "The last step, if it is there. Called with a DataFrame of all rows of a window, with"
            " the metadata columns; gives back the DataFrame of the rows that go to the table. Each"
            " of these keeps the metadata columns of a message that it comes from."
        )
    )

    @property
    def repeats(self) -> bool:
        return False
