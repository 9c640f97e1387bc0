"""The sections `limits` and `dead_letters`: how many a window may have, and a topic for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    ClientProperties,
    ClusterName,
    CountOrZero,
    Default,
    Section,
    Servers,
    Share,
    Values,
    WrittenTopicName,
)
from windrow.ingest.sinks.kind import cluster_conflicts


def is_beyond_share(dead: int, messages: int, share: float | None) -> bool:
    """Returns whether there are more dead letters than a `max_dead_ratio` allows.

    One dead letter is always allowed, except by a share of 0.
    """
    return share is not None and dead > max(share * messages, 1 if share else 0)


class StageLimits(Section):
    """Limits on the messages of a window that one stage refuses; None: any number."""

    max_dead_ratio: Annotated[Share | None, Values("0 to 1, `null`")] = Field(
        default=None,
        description=(
            "The share of a window's messages that this stage may refuse. One is always allowed,"
            " but for `0`. `null`: any share."
        ),
    )
    max_dead_count: Annotated[CountOrZero | None, Values("a number, `null`")] = Field(
        default=None,
        description="How many of a window's messages this stage may refuse. `null`: any number.",
    )


class LimitsSpec(Section):
    """Limits on the dead letters of a window, in total and by stage; None: any number."""

    max_dead_ratio: Annotated[Share | None, Values("0 to 1, `null`")] = Field(
        default=0.01,
        description=(
            "The share of a window's messages that may be dead letters; with more it is refused."
            " One is always allowed, however few messages there are; with `0` none is. `null`: any"
            " share."
        ),
    )
    max_dead_count: Annotated[CountOrZero | None, Values("a number, `null`")] = Field(
        default=None,
        description=(
            "How many dead letters a window may have; with more it is refused. `null`: any number."
        ),
    )
    warn_dead_ratio: Annotated[Share, Values("0 to 1")] = Field(
        default=0,
        description=(
            "The share of the messages of the newest windows that may be dead letters before"
            " Dagster's check `dead_letters` warns. One never makes it warn, but for `0`."
        ),
    )
    key: StageLimits = Field(
        default=StageLimits(),
        description="Of messages whose key isn't of its format, or doesn't fit its columns.",
    )
    header: StageLimits = Field(
        default=StageLimits(),
        description="Of messages with a header that is a column and doesn't fit it.",
    )
    value: StageLimits = Field(
        default=StageLimits(), description="Of messages whose value isn't of its format."
    )
    schema_: StageLimits = Field(
        default=StageLimits(),
        alias="schema",
        description="Of messages whose value is of its format and doesn't fit the columns.",
    )
    rules: StageLimits = Field(
        default=StageLimits(), description="Of messages that break a rule of the schema."
    )

    def for_stage(self, stage: str) -> StageLimits:
        """Returns the limits of one of `ingest.ports.decoder.STAGES`."""
        by_stage = {
            "key": self.key,
            "header": self.header,
            "value": self.value,
            "schema": self.schema_,
            "rules": self.rules,
        }
        return by_stage[stage]


class DeadLettersSpec(Section):
    """A topic for dead letters, in addition to their table.

    It is on the source's cluster, or on another one.
    """

    topic: Annotated[WrittenTopicName, Values("a name")] = Field(
        description=(
            "Committed windows' dead letters are written there too, each at least once, with Kafka"
            " Connect's headers. It must be there."
        )
    )
    cluster: Annotated[ClusterName | None, Default("the source's cluster")] = Field(
        default=None,
        description=(
            "The topic's cluster, by its name in a `windrow.yaml`; or it is given here, by"
            " `bootstrap_servers`."
        ),
    )
    bootstrap_servers: Annotated[Servers | None, Default("the source's cluster")] = Field(
        default=None, description="The first addresses of the topic's cluster."
    )
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description="Properties of librdkafka for it, as under `source.client`.",
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the conflicts of the settings that name the topic's cluster."""
        yield from cluster_conflicts(written, "topic")
