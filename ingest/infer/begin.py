"""A new pipeline's two files: a template, or what is inferred from a topic, tried on a
sample of its messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.admin.sample import sample_topics
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.formats.formats import make_decoder
from windrow.ingest.infer.hints import Hints
from windrow.ingest.infer.offer import EXAMPLE, class_lines, schema_text, unfit_for_table
from windrow.ingest.infer.proposal import Proposal, Setting, refuse_useless, with_columns
from windrow.ingest.infer.recognise import propose
from windrow.ingest.infer.spec_text import SCHEMA, SPEC, Address, class_name, spec_text
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.ports.schemas import UsesSchemas
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.load import import_pandera
from windrow.ingest.source.enumerator.grid import BATCH, after, at_or_before, cron

PLACEHOLDER = "my-topic"
"""Stands in the spec where no topic was named."""

DELAY = timedelta(minutes=5)
_DELAY = "5m"
_PLAIN = re.compile(r"[^A-Za-z0-9_]+")


class Asked(msgspec.Struct, frozen=True):
    """What a pipeline is begun with. `grid`, `id` None: chosen by what is found."""

    topic: str
    address: Address = Address()
    id: str | None = None
    grid: str | None = None


class Begun(msgspec.Struct, frozen=True):
    """What was written.

    `window`: the first one that can be run; null for micro-batches, and where no window
    is over yet.
    """

    pipeline: str
    spec: str
    schema: str
    grid: str
    start: datetime | None
    window: datetime | None


class Inferred(Begun, frozen=True):
    """And how well the sample fits: of `sampled` messages `fitting` are none that would
    be refused; the rest by reason.

    `told_by`: where format and columns are from. `notes`: what else a person should know.
    """

    format: str
    told_by: str
    columns: int
    sampled: int
    fitting: int
    refused: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


Connect = Callable[[PipelineSpec], tuple[Broker, Callable[[ReadPlan], Reader]]]


def template(folder: Path, asked: Asked, now: datetime) -> Begun:
    """Write both files with columns that are an example, into a folder, which is made
    if it isn't there.

    Nobody is asked.

    Raises:
        SpecError: one of the files is there already, or what was asked makes no spec;
            nothing is written then.
        UnreachableError: the folder can't be written.
    """
    _refuse_present(folder)
    name = _id(folder, asked)
    _as_spec(folder, name, asked)
    grid, start = _windows(asked.grid, None, now)
    schema = schema_text(
        class_name(name), "The columns of a topic, an example: put your own here", EXAMPLE
    )
    example = Proposal((), "", (Setting("format", "json"),))
    _write(
        folder, schema, spec_text(name, asked.topic, asked.address, grid, start, _DELAY, example)
    )
    return Begun(
        name, str(folder / SPEC), str(folder / SCHEMA), grid, start, _closed(grid, start, now)
    )


def infer(
    folder: Path, asked: Asked, stated: Hints, most: int, connect: Connect, now: datetime
) -> Inferred:
    """Write both files as the topic's messages, or a registry's schemas, tell them,
    into a folder, which is made if it isn't there.

    Args:
        folder: where the files go.
        asked: what the pipeline is begun with.
        stated: what is said of the messages.
        most: so many of the newest messages of each topic-partition are sampled.
        connect: makes the cluster, and readers of it, of a spec.
        now: this moment.

    Raises:
        SpecError: one of the files is there already, what was asked makes no spec,
            there is no such topic, or it doesn't tell enough; nothing is written then.
        UnreachableError: cluster or registry don't answer, or the folder can't be
            written.
    """
    _refuse_present(folder)
    name, topic = _id(folder, asked), asked.topic
    asking = _as_spec(folder, name, asked)
    registry = asking.stated_registry
    sample = sample_topics(*connect(asking), asking.source.selection(), most)
    proposal = with_columns(
        propose(topic, sample.messages, stated, registry), unfit_for_table(DEFAULT, delta=True)
    )
    refuse_useless(proposal, topic)
    grid, start = _windows(asked.grid, sample.begins, now)
    lines = class_lines(proposal.offers, _reserved())
    schema = schema_text(
        class_name(name),
        f"The columns of topic {topic}, {proposal.told_by}: change what you know better",
        lines,
    )
    address = replace(asked.address, registry=None if registry is None else registry.url)
    nulls = sample.messages.column("value").null_count
    made = partial(
        spec_text,
        name,
        topic,
        grid=grid,
        start=start,
        delay=_DELAY,
        proposal=proposal,
        tombstones=nulls,
    )
    fitting, refused = _tried(
        schema, made(address=replace(address, cluster=None)), registry, sample.messages
    )
    _write(folder, schema, made(address=address))
    return Inferred(
        name,
        str(folder / SPEC),
        str(folder / SCHEMA),
        grid,
        start,
        _closed(grid, start, now),
        proposal.format,
        proposal.told_by,
        sum(offer.usable for offer in proposal.offers),
        sample.messages.num_rows,
        fitting,
        tuple(refused.most_common()),
        _notes(proposal, asked),
    )


def _notes(proposal: Proposal, asked: Asked) -> tuple[str, ...]:
    idle = asked.address.registry is not None and not proposal.asks_registry
    return (
        *proposal.hints,
        *(
            [
                "the schema registry won't be asked when windows are run: the messages can be read"  # noqa: ISC004
                " without it"
            ]
            if idle
            else []
        ),
    )


def _id(folder: Path, asked: Asked) -> str:
    name = asked.topic if asked.topic != PLACEHOLDER else folder.absolute().name
    return asked.id or _PLAIN.sub("_", name).strip("_")[:100] or "example"


def _closed(grid: str, start: datetime | None, now: datetime) -> datetime | None:
    """The first window, if it can be run."""
    return None if start is None or after(grid, start) + DELAY > now else start


def _refuse_present(folder: Path) -> None:
    there = [name for name in (SPEC, SCHEMA) if (folder / name).exists()]
    if there:
        what = (
            f"{' and '.join(str(folder / name) for name in there)}"
            f" {'is' if len(there) == 1 else 'are'} there already"
        )
        raise SpecError(what, "spec", "Nothing was written. Name another folder, or move it away.")


def _write(folder: Path, schema: str, spec: str) -> None:
    """Each file is made anew or not at all; the spec comes last, so that one that is
    there has its schema.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((SCHEMA, schema), (SPEC, spec)):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        _refuse_present(folder)
        raise SpecError(
            f"{folder} is no folder", "spec", "Name one, or a place where one can be made."
        ) from None
    except OSError as error:
        raise UnreachableError(
            f"{folder} can't be written: {error.strerror}",
            "setup",
            "Name a folder in which you may write.",
        ) from error


def _as_spec(folder: Path, name: str, asked: Asked) -> PipelineSpec:
    """What is asked for, as a spec with some patience: what is wrong with it is told
    before anything is waited for.
    """
    patience = {"request_timeout": "5s", "stall_timeout": "10s"}
    asks = {} if asked.address.registry is None else {"format": "avro-confluent"}
    attributes: dict[str, Any] = {
        "id": name,
        "source": {**asked.address.source, "topic": asked.topic, "tuning": patience},
        "window": {"grid": BATCH},
        "decode": {"schema": "schema:Row", **asks},
        "sink": {"path": "data"},
    }
    if asked.grid not in {None, BATCH}:
        cron(str(asked.grid))
    looked_into = next(
        place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir()
    )
    return parse_spec(attributes, looked_into).model_copy(update={"folder": folder.absolute()})


def _tried(
    schema: str, spec: str, registry: Registry | None, messages: pa.Table
) -> tuple[int, Counter[str]]:
    """How many of the sampled messages would not be refused by the two texts, and why the others would.

    Raises:
        SpecError: the two don't go together.
    """  # noqa: E501
    with TemporaryDirectory() as draft:
        for file, text in ((SCHEMA, schema), (SPEC, spec)):
            (Path(draft) / file).write_text(text, encoding="utf-8")
        made = load_spec(Path(draft) / SPEC)
        key = made.sink.key
        decoder = make_decoder(
            made.decode, made.folder, () if key is None else key.deletes, keeps=made.sink.keeps
        )
        if key is not None:
            key.refuse_unfit(decoder.columns.arrow_schema)
        if registry is not None and isinstance(decoder, UsesSchemas):
            decoder = decoder.asking(registry)
        decode, refused = decoder.open(), Counter[str]()
        for batch in messages.combine_chunks().to_batches(max_chunksize=4096):
            refused.update(decode(batch).dead_reason.to_pylist())
    return messages.num_rows - refused.total(), refused


def _reserved() -> frozenset[str]:
    """What a field can't be called: the base class has the name, or the file."""
    return frozenset({*dir(import_pandera().DataFrameModel), "Config", "pa", "pl"})


def _windows(
    grid: str | None, begins: datetime | None, now: datetime
) -> tuple[str, datetime | None]:
    """The grid, and where its first window starts.

    If none is asked for: hours if one is over, else micro-batches, which have no start.
    """
    start_of = min(begins, now) if begins is not None else now
    if grid is None:
        fresh = (
            begins is not None and after("hourly", at_or_before("hourly", start_of)) + DELAY > now
        )
        grid = BATCH if fresh else "hourly"
    return grid, None if grid == BATCH else at_or_before(grid, start_of)
