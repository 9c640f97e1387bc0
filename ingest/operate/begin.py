"""A new pipeline's two files, from a look at its topic: the spec, and a schema whose types are guessed from a sample and tried on it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa

from ingest.decode.formats import make_decoder
from ingest.errors import SpecError, UnreachableError, WindrowError
from ingest.model.boundary import TopicPartition
from ingest.model.label import instant
from ingest.model.plan import Split
from ingest.model.source import Topics
from ingest.operate.infer import document, guess_columns, schema_text
from ingest.plan.topics import discover
from ingest.ports.broker import ClusterView
from ingest.ports.reader import Reader, ReadPlan, read_until
from ingest.schema.load import import_pandera
from ingest.schema.messages import MESSAGES, in_calendar
from ingest.schema.metadata import DEFAULT, clashes
from ingest.spec.load import load_spec, parse_spec
from ingest.spec.pipeline import PipelineSpec
from ingest.windows.grid import BATCH, after, at_or_before, cron

SPEC, SCHEMA = "defs.yaml", "schema.py"
"""The files' names."""

PLACEHOLDER = "my-topic"
"""Stands in the spec where no topic was named."""

FIRST = 20
"""So many messages at a log's start say when it begins."""

MOST_BYTES = 16 << 20
"""No more is sampled in all, but for the rest of one batch."""

DELAY = timedelta(minutes=5)
_PLAIN = re.compile(r"[^A-Za-z0-9_]+")


class Asked(msgspec.Struct, frozen=True):
    """What a pipeline is begun with. `topic` None: nothing is sampled. `grid`, `id` None: chosen by what is found."""

    bootstrap: str
    topic: str | None
    id: str | None
    grid: str | None
    sample: int


class Sample(msgspec.Struct, frozen=True):
    """The newest messages of each topic-partition (`MESSAGES`), and when the log begins; None: that can't be told."""

    messages: pa.Table
    begins: datetime | None


class Begun(msgspec.Struct, frozen=True):
    """What was written, and how well the sample fits: of `sampled` messages `fitting` are rows; the rest by reason.

    `window`: the first one that can be run; null for micro-batches, and where no window is over yet. `why`: why there is no sample.
    """

    pipeline: str
    spec: str
    schema: str
    grid: str
    start: datetime | None
    window: datetime | None
    sampled: int
    fitting: int
    refused: tuple[tuple[str, int], ...]
    columns: int
    why: str | None


Connect = Callable[[PipelineSpec], tuple[ClusterView, Callable[[ReadPlan], Reader]]]


def begin(folder: Path, asked: Asked, connect: Connect, now: datetime) -> Begun:
    """Write both files into a folder, which is made if it isn't there.

    Raises:
        SpecError: one of the files is there already, or what was asked makes no spec; nothing is written then.
        UnreachableError: the folder can't be written.
    """
    _refuse_present(folder)
    name = asked.id or _PLAIN.sub("_", asked.topic or folder.absolute().name).strip("_")[:100] or "example"
    sample, why = _sampled(_to_sample(folder, name, asked), asked, connect)
    values = [] if sample is None else sample.messages.column("value").to_pylist()
    documents = [found for value in values if value is not None and (found := document(value)) is not None]
    guessed = guess_columns(documents, _reserved(), _clashing)
    if why is None and not guessed.named:
        why = "none of the sampled messages is a JSON object" if values else f"topic {asked.topic} is empty"
    grid, start = _windows(asked.grid, None if sample is None else sample.begins, now)
    schema = schema_text(_class_name(name), f"topic {asked.topic}" if asked.topic else "a topic", guessed)
    spec = spec_text(name, asked, grid, start, tombstones=values.count(None))
    with TemporaryDirectory() as draft:
        for file, text in ((SCHEMA, schema), (SPEC, spec)):
            (Path(draft) / file).write_text(text, encoding="utf-8")
        fitting, refused = _tried(load_spec(Path(draft) / SPEC), None if sample is None else sample.messages)
    _write(folder, schema, spec)
    closed = None if start is None or after(grid, start) + DELAY > now else start
    return Begun(
        name, str(folder / SPEC), str(folder / SCHEMA), grid, start, closed, len(values), fitting,
        tuple(refused.most_common()), guessed.named, why,
    )  # fmt: skip


def _refuse_present(folder: Path) -> None:
    there = [name for name in (SPEC, SCHEMA) if (folder / name).exists()]
    if there:
        what = f"{' and '.join(str(folder / name) for name in there)} {'is' if len(there) == 1 else 'are'} there already"
        raise SpecError(what, "spec", "Nothing was written. Name another folder, or move it away.")


def _write(folder: Path, schema: str, spec: str) -> None:
    """Each file is made anew or not at all; the spec comes last, so that one that is there has its schema."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((SCHEMA, schema), (SPEC, spec)):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        _refuse_present(folder)
        raise SpecError(f"{folder} is no folder", "spec", "Name one, or a place where one can be made.") from None
    except OSError as error:
        raise UnreachableError(f"{folder} can't be written: {error.strerror}", "setup", "Name a folder in which you may write.") from error


# ----------------------------------------------------------------------------------------------------------------------------- sample


def _to_sample(folder: Path, name: str, asked: Asked) -> PipelineSpec:
    """What is asked for, as a spec with some patience: what is wrong with it is told before anything is waited for."""
    patience = {"request_timeout": "5s", "stall_timeout": "10s"}
    attributes = {
        "id": name,
        "source": {"bootstrap_servers": asked.bootstrap, "topic": asked.topic or PLACEHOLDER, "tuning": patience},
        "window": {"grid": BATCH},
        "decode": {"schema": "schema:Row"},
        "sink": {"path": "data"},
    }
    if asked.grid not in {None, BATCH}:
        cron(str(asked.grid))
    return parse_spec(attributes, folder)


def _sampled(spec: PipelineSpec, asked: Asked, connect: Connect) -> tuple[Sample | None, str | None]:
    """A sample, or why there is none: a pipeline may be begun before its cluster is there."""
    if asked.topic is None:
        return None, "no topic was named (--topic)"
    try:
        return sample_topic(*connect(spec), asked.topic, asked.sample), None
    except WindrowError as error:
        return None, error.what


def sample_topic(broker: ClusterView, reader: Callable[[ReadPlan], Reader], topic: str, most: int) -> Sample:
    """The newest messages of each topic-partition, at most so many.

    Raises:
        SpecError: there is no such topic.
        UnreachableError: the cluster doesn't answer.
    """
    found = discover(broker, Topics((topic,)), None, "fail")
    plan = ReadPlan(found.cluster_id, {name: info.topic_id for name, info in found.topics.items()}, "skip")
    starts, ends = broker.log_starts(found.tps), broker.stable_ends(found.tps)
    filled = [(tp, starts[tp], ends[tp].offset) for tp in found.tps if starts[tp] < ends[tp].offset]
    splits = [Split(tp.topic, tp.partition, max(start, end - most), end) for tp, start, end in filled]
    batches, size = [MESSAGES.empty_table()], 0

    def enough(batch: pa.RecordBatch) -> bool:
        nonlocal size
        batches.append(pa.Table.from_batches([batch]))
        size += int(batch.nbytes)
        return size >= MOST_BYTES

    for split in splits:
        if not read_until(reader(plan), split, enough):
            break
    stamps = [moment for tp, start, end in filled if (moment := _first_moment(broker, tp, start, end)) is not None]
    return Sample(pa.concat_tables(batches), min(stamps, default=None))


def _first_moment(broker: ClusterView, tp: TopicPartition, start: int, end: int) -> datetime | None:
    """When a log begins: the earliest of its first messages' timestamps, but for those a day and more before the middle one."""
    first: list[int] = []
    for chunk in broker.stamps(tp, start, min(end, start + FIRST)):
        first += [stamp for stamp in chunk.timestamps.tolist() if stamp >= 0]
    stamps = pa.array(sorted(first), pa.timestamp("ms", tz="UTC"))
    known: list[datetime] = stamps.filter(in_calendar(stamps)).to_pylist()
    if not known:
        return None
    middle = known[len(known) // 2]
    return next(moment for moment in known if middle - moment < timedelta(days=1))


def _tried(spec: PipelineSpec, messages: pa.Table | None) -> tuple[int, Counter[str]]:
    """How many of the sampled messages are rows by the written schema, and why the others are none."""
    decode = make_decoder(spec.decode, spec.folder).open()
    fitting, refused = 0, Counter[str]()
    for batch in [] if messages is None else messages.combine_chunks().to_batches(max_chunksize=4096):
        decoded = decode(batch)
        fitting += decoded.rows.num_rows + decoded.dropped
        refused.update(decoded.dead_reason.to_pylist())
    return fitting, refused


def _reserved() -> frozenset[str]:
    """What a field can't be called: the base class has the name, or the file."""
    return frozenset({*dir(import_pandera().DataFrameModel), "Config", "pa", "pl"})


def _clashing(column: str) -> bool:
    return next(iter(clashes([column], DEFAULT)), None) is not None


# -------------------------------------------------------------------------------------------------------------------------------- spec


def _windows(grid: str | None, begins: datetime | None, now: datetime) -> tuple[str, datetime | None]:
    """The grid, and where its first window starts. If none is asked for: hours if one is over, else micro-batches, which have no start."""
    start_of = min(begins, now) if begins is not None else now
    if grid is None:
        fresh = begins is not None and after("hourly", at_or_before("hourly", start_of)) + DELAY > now
        grid = BATCH if fresh else "hourly"
    return grid, None if grid == BATCH else at_or_before(grid, start_of)


def _class_name(name: str) -> str:
    found = "".join(part[:1].upper() + part[1:] for part in re.findall(r"[A-Za-z0-9]+", name))
    return found if found[:1].isalpha() and found not in {"None", "True", "False"} else "Row"


def spec_text(name: str, asked: Asked, grid: str, start: datetime | None, *, tombstones: int = 0) -> str:
    """The spec's file, with a word on each setting."""
    null = ("drop", f"{tombstones:,} of the sampled messages have no value: only counted") if tombstones else ("dead", "or drop")
    window: list[tuple[str, str]] = [(f"    grid: {json.dumps(grid)}", "in UTC; hourly, daily, a cron expression, or batch: micro-batches")]
    if start is not None:
        window += [
            (f"    start: {instant(start)}", "the first window"),
            ("    delay: 5m", "how long after its end a window is closed"),
        ]
    return _commented([
        ("# A pipeline of windrow: a topic becomes a table. docs/settings.md lists every setting.", ""),
        ("type: assets.component.KafkaTable", "for Dagster; the command reads the attributes only"),
        ("attributes:", ""),
        (f"  id: {json.dumps(name)}", "its identity, for ever"),
        ("  source:", ""),
        (f"    bootstrap_servers: {json.dumps(asked.bootstrap)}", 'or, from the environment: "{{ env.NAME }}"'),
        (f"    topic: {json.dumps(asked.topic or PLACEHOLDER)}", ""),
        ("    # client: {}", "librdkafka's properties: security.protocol, sasl.mechanism ..."),
        ("  window:", ""),
        *window,
        ("  decode:", ""),
        (f"    schema: {SCHEMA}:{_class_name(name)}", "columns, types and rules"),
        (f"    on_null: {null[0]}", f"a message without a value; {null[1]}"),
        ("    unknown: ignore", "fields that the schema doesn't name; or dead"),
        ("  limits:", ""),
        ("    max_dead_ratio: 0.01", "more dead letters than this share refuse the window"),
        ("  sink:", ""),
        (f"    path: ./data/{name}", "relative to this file; or a URL"),
    ])  # fmt: skip


def _commented(lines: Iterable[tuple[str, str]]) -> str:
    """Settings with their comments in one column, as far as they fit."""
    return "".join(f"{line:40}  # {comment}".rstrip() + "\n" if comment else f"{line}\n" for line, comment in lines)
