"""The `transform` section: steps between decoding and the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    Default,
    SchemaReference,
    Section,
    Values,
    refuse,
    section_of,
)
from windrow.ingest.transform.kinds import StepOfItsKind
from windrow.ingest.transform.spark.kind import SparkSection

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
        Default("the columns that the last step gives"),
    ] = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the rows have that"
            " reach the table."
        ),
    )

    @property
    def spark_at(self) -> int:
        """The index of the `spark` step; without a `spark` step, the number of steps."""
        return [*map(_is_spark, self.steps), True].index(True)

    @model_validator(mode="after")
    def _no_dead_letters_of_a_window(self) -> Self:
        """Refuses steps after a `spark` step that can make dead letters.

        A row of a `spark` step may come from several messages, so no message is the dead
        letter.
        """
        later_steps = range(self.spark_at + 1, len(self.steps))
        message = (
            "can't be dead behind a spark step: a row may be made of several messages, so there is"
            " no single message that could be the dead letter"
        )
        mistaken_paths = [
            ("steps", n, name) for n in later_steps if (name := self.steps[n].makes_dead)
        ]
        if mistaken_paths:
            refuse((path, message) for path in mistaken_paths)
        return self

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds an earlier version's form, a second `spark` step, and lookups with equal names."""
        if "spark" in written:
            yield (
                ("spark",),
                f"is a step: write\n  transform:\n    steps:\n      - spark: {written['spark']}",
            )
        for number in [n for n, step in enumerate(_steps(written)) if _is_spark(step)][1:]:
            yield ("steps", number), "there is a spark step before it, and there is at most one"
        names = [step.get("lookup") for step in _steps(written) if isinstance(step, Mapping)]
        for number, name in enumerate(names):
            if name is not None and name in names[:number]:
                yield ("steps", number, "lookup"), f"{name} is the name of two lookups"


def transform_mistakes(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    """Finds settings of a spec that conflict with a `spark` step.

    The sink's capabilities are checked later, when the pipeline is assembled.
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
    """Returns whether a step, as it was written or as a model, is a `spark` step."""
    return isinstance(step, SparkSection) or (isinstance(step, Mapping) and "spark" in step)


def _steps(written: Mapping[str, Any]) -> list[Any]:
    steps = written.get("steps")
    return list(steps) if isinstance(steps, list | tuple) else []
