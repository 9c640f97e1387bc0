"""The `transform` section: steps between decoding and the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import LeftOut, SchemaReference, Section, Values, section_of
from windrow.ingest.transform.kinds import StepOfItsKind
from windrow.ingest.transform.spark import SparkSection

_PER_MESSAGE = ("ordinal", "value-size")


class TransformSpec(Section):
    """Steps between decoding and the table, in their order."""

    steps: Annotated[tuple[StepOfItsKind, ...], Field(min_length=1), Values("a list of steps")] = (
        Field(
            description=(
                "What becomes of the rows, step by step; each is one of the kinds below and sees"
                " the columns of the one before it."
            )
        )
    )
    schema_: Annotated[
        SchemaReference | None,
        LeftOut("the columns that the steps give; behind `spark` those of `decode`"),
    ] = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the rows have that"
            " reach the table."
        ),
    )

    @property
    def spark(self) -> str | None:
        """The function of the `spark` step; None without one."""
        last = self.steps[-1]
        return last.spark if isinstance(last, SparkSection) else None

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds the form of before, and a `spark` step that isn't the last."""
        if "spark" in written:
            yield (
                ("spark",),
                f"is a step: write\n  transform:\n    steps:\n      - spark: {written['spark']}",
            )
        for number, step in enumerate(_steps(written)[:-1]):
            if _is_spark(step):
                yield ("steps", number), "spark must be the last step"
        names = [step.get("lookup") for step in _steps(written) if isinstance(step, Mapping)]
        for number, name in enumerate(names):
            if name is not None and name in names[:number]:
                yield ("steps", number, "lookup"), f"{name} is the name of two lookups"


def transform_mistakes(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    """Finds settings of a spec that conflict with a `spark` step.

    The sink's capabilities are checked when the pipeline is assembled.
    """
    if not any(map(_is_spark, _steps(section_of(written, "transform")))):
        return
    metadata = section_of(written, "metadata")
    if metadata.get("timestamp", "") in {None, "none"}:
        yield (
            ("metadata", "timestamp"),
            (
                "can't be left out with a spark step: of a row's message it knows what its"
                " columns say"
            ),
        )
    for name in _PER_MESSAGE:
        if metadata.get(name) not in {None, "none"}:
            yield (
                ("metadata", name),
                (
                    "can't go with a spark step: it is about a message's rows, or its value, as"
                    " they were before it"
                ),
            )


def _is_spark(step: object) -> bool:
    """Returns whether a step, as it was written or made, is a `spark` step."""
    return isinstance(step, SparkSection) or (isinstance(step, Mapping) and "spark" in step)


def _steps(written: Mapping[str, Any]) -> list[Any]:
    steps = written.get("steps")
    return list(steps) if isinstance(steps, list | tuple) else []
