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
    """What a step must know about its place in the spec and about the table.

    Attributes:
        setting_path: the step's place in the spec, for messages: `transform.steps.0.sql`.
        folder: the spec's folder.
        metadata: metadata columns that the step may read, metadata name -> column name; and
            `REST`, if rows have it.
        primary_key: the table's primary key; empty if rows are appended.
        versioned: whether the newest version of a key counts. Nothing is deleted then.
        behind_spark: whether a `spark` step comes before this step. The rows of a message
            have no numbers then.
    """

    setting_path: str
    folder: Path
    metadata: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    versioned: bool = False
    behind_spark: bool = False


class StepSection(Section):
    """One step under `transform.steps`. Each kind has its own model, with its options.

    The option with the kind's name says what the step does.
    """

    keeps_unavailable: ClassVar[bool] = True
    """Whether the step distinguishes unchanged columns (`Decoded.unavailable`) from null."""

    @property
    def is_repeatable(self) -> bool:
        """Whether the step gives exactly the same rows each time.

        A table that shows a window piece by piece needs the same rows from a second run.
        """
        return True

    @property
    def makes_dead(self) -> str | None:
        """The setting that makes dead letters of some rows; None if there is none."""
        return None

    def transform(self, context: StepContext) -> Transform:
        """Makes the transform that the section describes.

        Raises:
            SpecError: the section can't be used.
        """
        raise NotImplementedError
