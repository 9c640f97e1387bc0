"""The `dagster` section: what Dagster shows of a pipeline's table, and how it runs it.

The command reads the section too, so that it reports the same mistakes. It doesn't use the
values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from windrow.ingest.config.window import Cron, MicroBatches, TimeWindows, WindowSpec, is_cron
from windrow.ingest.model.boundary import instant
from windrow.ingest.model.grid import at_or_before, shortest_window, some_labels
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    Count,
    CountOrZero,
    Default,
    Duration,
    Section,
    Text,
    TextOrEmpty,
    Values,
    must,
    sentence,
)

EAGER = "eager"
"""The automation condition that requests each window once it is closed."""

_EMAIL = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}"
_NAME = r"[A-Za-z0-9_.-]{1,63}"


_LOCAL = re.compile(r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\]|-cluster\[.*\])?$")


def is_master(text: str) -> bool:
    """Returns whether a text may be Spark's master. For this machine, few forms are allowed."""
    return not text.startswith("local") or _LOCAL.match(text) is not None


def _like(pattern: str, requirement: str) -> Any:
    return must(re.compile(pattern).fullmatch, requirement)


AssetKeyText = Annotated[
    Text,
    _like(
        r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*",
        "be an asset key: parts of a-z A-Z 0-9 . _ - with / between them",
    ),
    Values("a key, its parts with `/` between them"),
]
Owner = Annotated[Text, _like(rf"team:.+|{_EMAIL}", "be an e-mail address, or team:NAME")]
TagKey = Annotated[
    Text,
    _like(
        rf"(?!dagster/)({_NAME}/)?{_NAME}",
        "be 1 to 63 of a-z A-Z 0-9 . _ -, with as much and / before it or without; dagster/ is"
        " Dagster's",
    ),
]
TagValue = Annotated[
    TextOrEmpty, _like(r"[A-Za-z0-9_.-]{0,63}", "be up to 63 of a-z A-Z 0-9 . _ -")
]
Kind = Annotated[Text, _like(_NAME, "be 1 to 63 of a-z A-Z 0-9 . _ -")]
AtLeastAMinute = Annotated[
    Duration,
    must(
        lambda value: value >= timedelta(minutes=1), "be at least 1m: Dagster looks no more often"
    ),
]


class FreshnessSpec(Section):
    """The maximum age of the newest materialization, of any window."""

    fail_window: AtLeastAMinute | None = Field(
        default=None,
        description="Dagster's freshness fails if the newest materialization is older.",
    )
    warn_window: AtLeastAMinute | None = Field(
        default=None, description="With `fail_window`: it warns from this age on."
    )
    deadline_cron: Cron | None = Field(
        default=None,
        description=(
            "Or the deadlines, in UTC: there must be a new materialization before each one."
        ),
    )
    lower_bound_delta: AtLeastAMinute | None = Field(
        default=None,
        description=(
            "With `deadline_cron`: how long before a deadline it may be; no longer than from one"
            " deadline to the next."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses `fail_window` with `deadline_cron`, neither of them, and half of a pair."""
        stated_names = {name for name, value in written.items() if value is not None}
        if ("fail_window" in stated_names) == ("deadline_cron" in stated_names):
            yield (), "set fail_window, or deadline_cron with lower_bound_delta"
        for name, whose in (("warn_window", "fail_window"), ("lower_bound_delta", "deadline_cron")):
            if name in stated_names and whose not in stated_names:
                yield (name,), f"goes with {whose}"
        if "deadline_cron" in stated_names and "lower_bound_delta" not in stated_names:
            yield ("lower_bound_delta",), "is missing"

    @field_validator("warn_window")
    @classmethod
    def _before_the_failure(cls, warn: timedelta | None, info: ValidationInfo) -> timedelta | None:
        fail = info.data.get("fail_window")
        if warn is not None and fail is not None and warn >= fail:
            raise sentence("must be shorter than fail_window")
        return warn

    @field_validator("lower_bound_delta")
    @classmethod
    def _within_one_interval(
        cls, lower: timedelta | None, info: ValidationInfo
    ) -> timedelta | None:
        deadline = info.data.get("deadline_cron")
        if (
            lower is not None
            and deadline is not None
            and lower > (gap := shortest_window(deadline))
        ):
            raise sentence(
                f"must not be longer than the shortest time between two deadlines, {gap}"
            )
        return lower


class SparkSpec(Section):
    """The Spark of Dagster's runs. The command has options for it."""

    master: Annotated[
        Annotated[Text, must(is_master, "be local, local[4], local[*], or a cluster's URL")] | None,
        Values("`local[4]`, a cluster's URL"),
        Default("a task per core"),
    ] = Field(default=None, description="Spark's master.")
    conf: Annotated[Mapping[str, Text], Values("`{property: value}`")] = Field(
        default_factory=dict,
        repr=False,  # they may contain a storage's password
        description="Spark properties, on top of windrow's own.",
    )
    connect: Annotated[
        Annotated[Text, _like("sc://.+", "be sc://HOST:PORT")] | None, Values("`sc://HOST:PORT`")
    ] = Field(
        default=None,
        description=(
            "In place of both: a Spark Connect server, which has a master and properties of its"
            " own."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses settings that have no effect on a Spark Connect server."""
        if written.get("connect") is not None and (written.get("master") or written.get("conf")):
            yield (
                ("connect",),
                (
                    "excludes master and conf: give them to the server, windrow spark run --conf"
                    " NAME=VALUE"
                ),
            )


class DagsterSpec(Section):
    """What Dagster shows of the table, and how it runs it."""

    key: Annotated[AssetKeyText | None, Default("the pipeline's id")] = Field(
        default=None,
        description=(
            "The table's asset key, its prefix included: `bank/payments`. Its dead letters have the"
            " same key with `_dead` behind it."
        ),
    )
    group_name: Annotated[
        Annotated[
            Text,
            _like(
                r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*",
                "be a group's name: a-z A-Z 0-9 _, its levels with / between them",
            ),
        ]
        | None,
        Values("a name"),
        Default("Dagster's `default`"),
    ] = Field(
        default=None,
        description="The group of the table, its dead letters, and the topics that it reads.",
    )
    owners: Annotated[list[Owner], Values("a list of e-mail addresses and `team:NAME`")] = Field(
        default_factory=list, description="Who answers for the table and its dead letters."
    )
    tags: Annotated[Mapping[TagKey, TagValue], Values("`{NAME: value}`, `{NAME: ''}`")] = Field(
        default_factory=dict,
        description="Tags of the table and its dead letters; an empty value makes a label.",
    )
    kinds: Annotated[
        Annotated[list[Kind], Field(min_length=1, max_length=10)] | None,
        Values("a list of names"),
        Default("`kafka`, `spark` and the table's kind"),
    ] = Field(default=None, description="The icons of the table's asset.")
    pool: Annotated[
        Annotated[Text, _like(r"\S+", "not have spaces")] | None, Values("a name"), Default("none")
    ] = Field(
        default=None,
        description=(
            "The concurrency pool of the table's step: no more of these steps run at once than the"
            " pool's limit allows, in all pipelines that name it."
        ),
    )
    max_partitions_per_run: Annotated[Count | None, Default("all of a backfill's, in one run")] = (
        Field(default=None, description="The most windows of a backfill in one run.")
    )
    retries: Annotated[CountOrZero, Field(le=10)] = Field(
        default=2,
        description=(
            "How often a run tries again that didn't reach a system; what was refused is not tried"
            " again."
        ),
    )
    retry_wait: Duration = Field(
        default=timedelta(seconds=10),
        description="The wait before the first retry; it doubles with each.",
    )
    freshness_policy: FreshnessSpec | None = Field(
        default=None,
        description=(
            "When Dagster calls the table fresh, by the time of its newest materialization, of"
            " whichever window; exactly one of `fail_window` and `deadline_cron` is set."
        ),
    )
    automation_condition: Annotated[
        Annotated[
            Text,
            must(
                lambda value: value == EAGER or (" " in value and is_cron(value)),
                f"be {EAGER}, or a cron expression of five fields",
            ),
        ]
        | None,
        Values(f"`{EAGER}`, a cron expression"),
        Default("none: the schedule asks"),
    ] = Field(
        default=None,
        description=(
            f"When Dagster's automation asks for the newest window if it isn't there: once it is"
            f" closed (`{EAGER}`), or at these times, in UTC. It takes the place of the schedule,"
            " which stays switched off then."
        ),
    )
    spark: SparkSpec = Field(
        default=SparkSpec(),
        description="Which Spark Dagster's runs have. Of the command, options say it.",
    )

    def mistakes(self, window: WindowSpec) -> Iterator[tuple[SettingPath, str]]:
        """Finds settings that micro-batches can't have, and conditions that need open windows."""
        condition = self.automation_condition
        if not isinstance(window, TimeWindows):
            for name in ("max_partitions_per_run", "automation_condition"):
                if getattr(self, name) is not None:
                    yield (name,), MicroBatches.of_other_kind
        elif condition == EAGER and window.delay >= shortest_window(window.grid):
            yield (
                ("automation_condition",),
                (
                    f"must not be {EAGER} if window.delay is as long as a window: when one is"
                    " closed, the next one has ended already"
                ),
            )
        elif condition is not None and condition != EAGER:
            for tick in some_labels(condition):
                if tick - at_or_before(window.grid, tick) < window.delay:
                    message = f"would ask at {instant(tick)} for a window that is not closed yet"
                    yield ("automation_condition",), f"{message}: window.delay is {window.delay}"
                    break
