"""Settings of a `python` step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.settings.values import FunctionName, SchemaReference
from windrow.ingest.transform.kind import StepContext, StepSection

if TYPE_CHECKING:
    from windrow.ingest.ports.transform import Transform


class PythonSection(StepSection):
    """A function over batches of rows."""

    keeps_unavailable = False

    python: FunctionName = Field(
        description=(
            "Called with a batch of rows, a polars.DataFrame or a pyarrow.RecordBatch as its"
            " parameter's annotation says; gives a row for each row, or keeps the column `_row`."
        )
    )
    schema_: SchemaReference = Field(
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules its rows have."
        ),
    )
    on_error: Literal["fail", "dead"] = Field(
        default="fail",
        description=(
            "What becomes of a batch at which the function raises: the window fails, or each row"
            " is tried alone, and those that fail are dead letters."
        ),
    )

    @property
    def is_repeatable(self) -> bool:
        return False

    @property
    def makes_dead(self) -> str | None:
        return "on_error" if self.on_error == "dead" else None

    def transform(self, context: StepContext) -> Transform:
        # imported here: these modules load Arrow
        from windrow.ingest.schema.user_code import FunctionReference, ModelReference
        from windrow.ingest.transform.chain import Chain
        from windrow.ingest.transform.python.step import Python
        from windrow.ingest.transform.validate import Validate

        model = ModelReference(self.schema_, context.folder)
        step = Python(
            FunctionReference(self.python, context.folder),
            model,
            context.setting_path,
            tuple(context.metadata.items()),
            context.primary_key,
            context.versioned,
            self.on_error,
        )
        return Chain((step, Validate(model)))
