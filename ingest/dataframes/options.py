"""The options of the data sources `windrow` and `windrow-kafka`.

They are checked like a spec: all mistakes are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, PlainValidator

from windrow.ingest.config.settings_file import client_mistakes, refusal, validate
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import Isolation
from windrow.ingest.settings.document import Document, Mistake, SettingPath
from windrow.ingest.settings.values import ClientProperties, Section, Servers, Text, sentence

_CLIENT = "client."


def _splits(value: object) -> tuple[Split, ...]:
    """Validates a JSON list of ranges that don't overlap, and sorts them."""
    try:
        splits = sorted(
            msgspec.json.decode(str(value), type=tuple[Split, ...]),
            key=lambda split: (split.tp, split.start),
        )
    except msgspec.MsgspecError as error:
        raise sentence(
            f'must be a JSON list of {{"topic", "partition", "start", "stop"}}: {error}'
        ) from None
    twice = next(
        (
            following
            for previous, following in pairwise(splits)
            if previous.tp == following.tp and following.start < previous.stop
        ),
        None,
    )
    if twice is not None:
        raise sentence(
            f"offset {twice.start} of {twice.tp} lies in two splits, so it would be read twice"
        )
    if not splits:
        raise sentence("must name at least one split")
    return tuple(splits)


class ReadOptions(Section):
    """The options of a read.

    Exactly one of `window` and `splits` says which offsets are read. Exactly one of `spec` and
    `bootstrap_servers` says from which cluster.
    """

    spec: Text | None = None
    window: Text | None = None
    splits: Annotated[tuple[Split, ...] | None, PlainValidator(_splits)] = None
    bootstrap_servers: Servers | None = None
    client: ClientProperties = Field(default_factory=dict, repr=False)
    isolation: Isolation = "read_committed"
    columns: Literal["rows", "messages"] | None = None
    mode: Literal["failfast", "dropmalformed"] = "failfast"

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields options that conflict."""
        if ("spec" in written) == ("bootstrap_servers" in written):
            yield (), "exactly one of spec and bootstrap_servers says which cluster is read"
        if ("window" in written) == ("splits" in written):
            yield (), "exactly one of window and splits says which offsets are read"
        if "spec" in written:
            yield from (
                ((name,), "can't be set with spec, which says it")
                for name in ("client", "isolation")
                if name in written
            )
        else:
            if "window" in written:
                yield ("window",), "is a window of a pipeline: it goes with spec"
            if written.get("columns") == "rows":
                yield (
                    ("columns",),
                    "without a spec nothing says how messages become rows: there are messages only",
                )
        if "mode" in written and (written.get("columns") == "messages" or "spec" not in written):
            yield ("mode",), "is about messages that can't become rows, and these stay messages"


def read_options(spark_options: Mapping[str, str]) -> ReadOptions:
    """Validates Spark's options of a read.

    Raises:
        SpecError: the options have mistakes; the text has all of them.
    """
    values: dict[str, Any] = {
        name: value for name, value in spark_options.items() if not name.startswith(_CLIENT)
    }
    client = {
        name.removeprefix(_CLIENT): value
        for name, value in spark_options.items()
        if name.startswith(_CLIENT)
    }
    if client:
        values["client"] = client
    for name in ("mode", "columns", "isolation"):
        if name in values:
            values[name] = str(values[name]).lower()  # Spark's own formats ignore case, too
    options, mistakes = validate(ReadOptions, values)
    all_mistakes = [*mistakes, *client_mistakes(values, ())]
    all_mistakes = _refusing_path(
        values, all_mistakes, "load() takes no path: a pipeline's file goes into the option spec"
    )
    if options is None or all_mistakes:
        raise refusal("the options of the read", all_mistakes, Document(values))
    return options


def _number(value: object) -> int:
    """Validates the number of a batch, which Spark gives as text."""
    if not re.fullmatch(r"\d{1,9}", str(value), re.ASCII):
        raise sentence("must be a number of up to 9 digits", value)
    return int(str(value))


class WriteOptions(Section):
    """The options of a write.

    Attributes:
        spec: the path of the file with the writer's id and the sink.
        batch: the number of the batch. Rows are written once under each number.
    """

    spec: Text
    batch: Annotated[int, PlainValidator(_number)]


def write_options(spark_options: Mapping[str, str]) -> WriteOptions:
    """Validates Spark's options of a write.

    Raises:
        SpecError: the options have mistakes; the text has all of them.
    """
    options, mistakes = validate(WriteOptions, spark_options)
    mistakes = _refusing_path(
        spark_options,
        mistakes,
        "save() takes no path: the file that says where to write goes into the option spec",
    )
    if options is None or mistakes:
        raise refusal("the options of the write", mistakes, Document(dict(spark_options)))
    return options


def _refusing_path(written: Mapping[str, Any], mistakes: list[Mistake], says: str) -> list[Mistake]:
    """Returns the mistakes, with another sentence about the option `path`.

    Spark's `load(path)` and `save(path)` add this option.

    Args:
        written: the options.
        mistakes: their mistakes.
        says: the sentence if there is a path.
    """
    return (
        [*(m for m in mistakes if m.path != ("path",)), Mistake((), says)]
        if "path" in written
        else mistakes
    )
