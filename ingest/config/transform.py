"""The `transform` section: a Spark function between decoding and the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.formats.kind import SchemaReference
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import FunctionName, LeftOut, Section, section_of

_PER_MESSAGE = ("ordinal", "value-size")


class TransformSpec(Section):
    """A function of DataFrames between decoding and the table."""

    spark: FunctionName = Field(
        description=(
            "Called with a DataFrame of all rows of a window, with the metadata columns; gives back"
            " the DataFrame of the rows that go to the table. Each of these keeps the metadata"
            " columns of a message that it comes from."
        )
    )
    schema_: Annotated[
        SchemaReference | None, LeftOut("that of `decode`, or what the format's columns are")
    ] = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules its rows have."
        ),
    )


def transform_mistakes(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    """Finds settings of a spec that conflict with such a function.

    The sink's capabilities are checked when the pipeline is assembled.
    """
    if written.get("transform") is None:
        return
    metadata = section_of(written, "metadata")
    if metadata.get("timestamp", "") in {None, "none"}:
        yield (
            ("metadata", "timestamp"),
            (
                "can't be left out with transform.spark: of a row's message it knows what its"
                " columns say"
            ),
        )
    for name in _PER_MESSAGE:
        if metadata.get(name) not in {None, "none"}:
            yield (
                ("metadata", name),
                (
                    "can't go with transform.spark: it is about a message's rows, or its value, as"
                    " they were before it"
                ),
            )
