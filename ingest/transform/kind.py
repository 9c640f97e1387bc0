"""Settings that every kind of transform step has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from windrow.ingest.settings.values import Section

if TYPE_CHECKING:
    from windrow.ingest.ports.transform import Transform


@dataclass(frozen=True)
class StepContext:
    """Where a step stands, and what it must leave as it is.

    `setting`: its place in the spec, for messages; `folder`: the spec's; `metadata`: the
    metadata columns that are known of a message, name -> column; `primary_key`: the
    table's, empty for one that rows are appended to; `versioned`: whether the newest
    version of a key counts, so that nothing is deleted; `behind_spark`: whether its rows
    come of a `spark` step, where the rows of a message have no numbers.
    """

    setting: str
    folder: Path
    metadata: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    versioned: bool = False
    behind_spark: bool = False


class StepSection(Section):
    """One step under `transform.steps`. Each kind has a model of its own, with its options.

    The option that has the kind's name says what the step does.
    """

    keeps: ClassVar[bool] = True
    """Whether it tells apart what a change left unchanged (`Decoded.unavailable`) from null."""

    @property
    def repeats(self) -> bool:
        """Whether it gives exactly the same rows each time.

        A table that shows a window piece by piece needs the same rows from a second run.
        """
        return True

    @property
    def makes_dead(self) -> str | None:
        """The setting that makes dead letters of some rows; None where none does."""
        return None

    def transform(self, context: StepContext) -> Transform:
        """Makes the transform that the section describes.

        Raises:
            SpecError: none can be made of it.
        """
        raise NotImplementedError
