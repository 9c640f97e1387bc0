"""The checks of `windrow doctor`: one line each, with the fix.

`examine` asks the systems; `check_java`, `executor_checks` and `sink_check` are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from packaging.requirements import Requirement
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.lag import describe_uncommitted, find_series, find_uncommitted
from windrow.ingest.admin.new_topics import ADVICE, describe_new_topics, find_new_topics
from windrow.ingest.admin.peek import begin_of_log
from windrow.ingest.admin.retention_margin import (
    find_oldest_open_window,
    next_window,
    retention_margin,
)
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.prepare import find_unprepared
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.maintain import LEAST_KEPT
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import (
    BugError,
    NotClosedError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
    foreign_exceptions,
    format_count,
    how_to_install,
    join_first_few,
)
from windrow.ingest.java import java_problem, java_untried
from windrow.ingest.model.boundary import TopicPartition, instant
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.ports.broker import Broker, TellsRights, TopicInfo
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.registry.client import Registry
from windrow.ingest.runner.attempts import find_pin_end
from windrow.ingest.runner.availability import (
    expiring_messages,
    joining_topics,
    unselected_topics,
)
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.frozen_stop import still_to_come
from windrow.ingest.runner.micro_batches import is_done, preview_next
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.runner.ownership import (
    lost_in_words,
    lost_windows,
    pause_of,
    refuse_other_end,
    refuse_other_tables,
    refuse_restored,
    refuse_unusable_table,
    refuse_unwritable,
)
from windrow.ingest.runner.run_windows import preview, refuse_open
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.sinks.kit.files.write_check import try_writing
from windrow.ingest.source.enumerator.timestamp_search import of_seconds
from windrow.ingest.source.enumerator.topics import Discovered, discover

if TYPE_CHECKING:
    from windrow.ingest.admin.executors import SurveyReport
    from windrow.ingest.runner.spark.engine import SparkEngine


class Check(msgspec.Struct, frozen=True):
    """A check, which is shown as one line.

    Attributes:
        name: the name of the check.
        level: the result.
        message: what was found.
        fix: what to do.
        exit_code: the command's exit code if this check fails.
    """

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str = msgspec.field(name="what")
    fix: str = ""
    exit_code: int = 0


class Examined(msgspec.Struct):
    """The document of `doctor`."""

    checks: list[Check]


def exit_code(checks: Iterable[Check]) -> int:
    """Returns the exit code of the first check that failed; 0 if none did."""
    return next((c.exit_code for c in checks if c.level == "fail"), 0)


def check_line(check: Check) -> Text:
    """Formats a check as a line: `ok    java    ...`."""
    style = {"ok": "green", "warn": "yellow", "fail": "red"}[check.level]
    text = Text(f"{check.level:5}", style=style).append(f"{check.name:13}", style="bold")
    return text.append(f"{check.message}{f'. {check.fix}' if check.fix else ''}", style="default")


def examine(
    spec: Path | None, engine: SparkEngine | None = None, *, write: bool = False
) -> Iterator[Check]:
    """Yields each check as soon as it is done. Checks that need a failed one are left out.

    Args:
        spec: the pipeline's file; None: only this machine is checked.
        engine: the Spark whose executors are checked, too.
        write: whether to write a file to each of the sink's places, and remove it.
    """
    problem = java_problem()
    yield check_java(problem, None if problem else java_untried())
    yield (
        Check("prepared", "ok", "machine code and Java's archive of Spark's classes are there")
        if (missing := find_unprepared()) is None
        else Check("prepared", "warn", missing, "windrow prepare makes it, for quicker first runs")
    )
    if spec is None:
        yield check_extras()
        return
    try:
        pipeline = assemble.assemble(load_spec(spec))
    except WindrowError as error:
        yield failed_check("spec", error)
        return
    pipeline = replace(pipeline, ledger=pipeline.ledger.without_writes())
    yield Check("spec", "ok", f"{spec} is pipeline {pipeline.spec.id}")
    checks = list[Check]()
    for check in _pipeline(pipeline, write=write):
        checks.append(check)
        yield check
    if engine is not None and not exit_code(checks):
        yield from _executors(pipeline, engine, write=write)


def _executors(pipeline: Pipeline, engine: SparkEngine, *, write: bool) -> Iterator[Check]:
    from windrow.ingest.admin.executors import look_around

    try:
        topics = _discovered(pipeline)
        surveyed = look_around(pipeline, engine, engine.slots, topics, write=write)
    except WindrowError as error:
        yield failed_check("executors", error)
        return
    yield from executor_checks(surveyed)


def executor_checks(surveyed: SurveyReport) -> Iterator[Check]:
    """Yields one check for the executors that answered, and one per problem, with its machines."""
    pythons = ", ".join(sorted({report.python for report in surveyed.executors}))
    answered_by = (
        f"{format_count(len(surveyed.executors), 'executor')} on"
        f" {join_first_few(surveyed.machines)} answered, with {pythons}"
    )
    incomplete_note = "" if surveyed.complete else ", and there may be others"
    read = (
        f"{format_count(surveyed.read, 'topic-partition')} tried"
        if surveyed.read
        else "no broker tried, because there is no message yet"
    )
    written = (
        f"{format_count(surveyed.written, 'place')} of the sink"
        if surveyed.written
        else "no place of the sink"
    )
    message = (
        f"{answered_by}{incomplete_note}; code and packages are the driver's; {read}, {written}"
    )
    yield Check("executors", "ok" if surveyed.complete else "warn", message)
    for trouble, machines in surveyed.troubles.items():
        yield Check(
            "executors",
            "fail",
            f"on {join_first_few(machines)}: {trouble.message}",
            trouble.advice,
            UnreachableError.exit_code,
        )


def _pipeline(pipeline: Pipeline, *, write: bool) -> Iterator[Check]:
    """Checks ledger, table and cluster, each by itself. Checks that need several of them follow."""
    state = run_check("state", lambda: _state(pipeline))
    yield state
    sink = run_check(
        "sink", lambda: _sink(pipeline, pipeline.ledger.identity() if state.level == "ok" else None)
    )
    yield sink
    for location in sorted(set(pipeline.sink.places()) if write else ()):
        yield run_check("write", partial(_check_write, location))
    if "fail" not in {state.level, sink.level}:
        yield run_check("windows", lambda: _windows(pipeline))
    broker = run_check(
        "broker", lambda: Check("broker", "ok", f"cluster {pipeline.broker.cluster_id()}")
    )
    yield broker
    topic = pipeline.dead_topic
    if topic is not None:
        yield run_check("dead letters", lambda: _dead_topic(topic))
    registry = pipeline.spec.registry
    if registry is not None:
        yield run_check("registry", lambda: _registry(registry))
    if broker.level == "fail":
        return
    if pipeline.spec.watched_pattern is not None:
        yield run_check("new topics", lambda: _new_topics(pipeline))
    rights = list(_check_rights(pipeline, ledger=state.level == "ok"))
    yield from rights
    if registry is not None and "fail" not in {state.level, *(check.level for check in rights)}:
        yield from _records(pipeline)
    if "fail" not in {state.level, sink.level, *(check.level for check in rights)}:
        yield run_check("next", lambda: _next_window(pipeline))
        yield run_check("retention", lambda: _retention(pipeline))
        if pipeline.lookups():
            yield run_check("lookups", lambda: _lookups(pipeline))


def _check_write(location: str) -> Check:
    try_writing(location)
    return Check("write", "ok", f"a file was written below {location}, and removed")


def _state(pipeline: Pipeline) -> Check:
    pipeline.ledger.refuse_unwritable()
    ledger = f"ledger {pipeline.ledger.identity()}"
    pause = pause_of(pipeline.ledger, pipeline.spec.id)
    if pause is None:
        return Check("state", "ok", ledger)
    message = f"{ledger}; the pipeline {pause}"
    return Check("state", "warn", message, "windrow resume SPEC ends the pause.")


def _discovered(pipeline: Pipeline, *, ledger: bool = True) -> Discovered:
    source = pipeline.spec.source
    start = next_start(pipeline.ledger, pipeline.spec.id) if ledger else None
    return discover(pipeline.broker, source.selection(), start, source.on_removed)


def _dead_topic(topic: DeadTopic) -> Check:
    topic.refuse_unwritable()
    return Check("dead letters", "ok", f"topic {topic.name} may be written")


def _new_topics(pipeline: Pipeline) -> Check:
    names = find_new_topics(pipeline)
    level: Literal["ok", "warn"] = "warn" if names else "ok"
    return Check("new topics", level, describe_new_topics(names), ADVICE if names else "")


def _records(pipeline: Pipeline) -> Iterator[Check]:
    """Warns if neither the spec nor a schema says which record the messages have.

    It isn't a failure, because a new topic has no schema yet.
    """
    try:
        topics = sorted(_discovered(pipeline).topics)
    except WindrowError:
        return  # the checks of the topics have reported it
    try:
        decoder_for(pipeline, topics)
    except SpecError as error:
        yield Check("records", "warn", error.message, error.advice)
    except WindrowError:
        return  # the check of the registry has reported it


def _registry(registry: Registry) -> Check:
    # Neither the subject nor the id needs to exist: any answer is enough.
    registry.of_subject("windrow-doctor", 1)
    registry.schema("glue-00000000-0000-0000-0000-000000000000")
    return Check("registry", "ok", f"{registry.url} answers")


def run_check(name: str, check: Callable[[], Check]) -> Check:
    """Performs a check. An error becomes a failed check."""
    try:
        return check()
    except WindrowError as error:
        return failed_check(name, error)
    except foreign_exceptions() as error:  # reported, so that the other checks continue
        return failed_check(name, BugError.of(error, "setup"))


def failed_check(name: str, error: WindrowError) -> Check:
    """Converts an error to a failed check."""
    if "\n" in error.message:
        return Check(name, "fail", str(error), exit_code=error.exit_code)
    # with the position in the log
    message = error.message if error.topic is None else str(error).removesuffix(f". {error.advice}")
    return Check(name, "fail", message, error.advice, error.exit_code)


# --------------------------------------------------------------------------------------------------


def check_java(problem: str | None, untried: str | None = None) -> Check:
    """Checks Java, which Spark and the embedded broker need."""
    return (
        Check("java", "fail", problem, exit_code=3)
        if problem is not None
        else Check("java", "ok", "Spark supports the installed version")
        if untried is None
        else Check("java", "warn", untried, "If Spark or Kafka fails on it, take one of these")
    )


def check_extras() -> Check:
    """Reports which extras are installed, and how to install the others.

    It never fails, because the pipelines decide which extras are needed.
    """
    windrow = "windrow-ingest"
    known_extras = metadata.metadata(windrow).get_all("Provides-Extra") or []
    installed_extras = [
        name for name in known_extras if not _find_missing(Requirement(f"{windrow}[{name}]"))
    ]
    absent = [name for name in known_extras if name not in installed_extras]
    message = f"installed: {', '.join(installed_extras) or 'none'}"
    if not absent:
        return Check("extras", "ok", message)
    message = f"{message}; not installed, and needed by some pipelines only: {', '.join(absent)}"
    return Check("extras", "ok", message, how_to_install(",".join(absent)))


def _find_missing(requirement: Requirement) -> list[str]:
    """Returns packages of a requirement and its extras that are missing or have another version."""
    try:
        distribution = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return [requirement.name]
    if not requirement.specifier.contains(distribution.version, prereleases=True):
        return [requirement.name]
    return [
        name
        for needed in map(Requirement, distribution.requires or ())
        for extra in requirement.extras
        if needed.marker is not None
        and needed.marker.evaluate({"extra": extra})
        and not needed.marker.evaluate({"extra": ""})
        for name in _find_missing(needed)
    ]


# --------------------------------------------------------------------------------------------------


def _sink(pipeline: Pipeline, ledger: str | None) -> Check:
    refuse_unwritable(pipeline)
    spec, sink = pipeline.spec, pipeline.sink
    check = sink_check(spec.sink_path(), sink.owner(), spec.id, spec.window.grid, ledger)
    if ledger is not None:
        refuse_other_tables(pipeline)
    level, lines = check.level, [check.message]
    delivery = sink.capabilities.delivery
    if delivery != "exactly-once":
        missing = "" if delivery == "at-least-once" else ", or be missing"
        lines.append(f"its rows may be there twice{missing}: delivery_guarantee is {delivery}")
        level = level if delivery == "at-least-once" else "warn"
    if warnings := sink.warnings():
        lines += warnings
        level = "warn"
    if new := refuse_unusable_table(pipeline):
        lines.append(f"the next rows change its columns: {', '.join(new)}")
    return msgspec.structs.replace(check, message="; ".join(lines), level=level)


def _next_window(pipeline: Pipeline) -> Check:
    """Checks whether the next window can be read; warns if a joining topic has older messages."""
    grid = pipeline.spec.window
    if isinstance(grid, MicroBatches):
        plan = preview_next(pipeline)
        if plan is None:
            done_note = "all up to window.stop is committed" if is_done(pipeline) else None
            return Check(
                "next",
                "ok",
                done_note or f"no micro-batch is waiting.{still_to_come(pipeline)}".rstrip("."),
            )
    else:
        window = next_window(pipeline, grid)
        try:
            refuse_open(pipeline, window)
        except NotClosedError:
            return Check(
                "next", "ok", f"window {window.key} isn't closed yet, all before it are committed"
            )
        plan = preview(pipeline, window)
    joining = joining_topics(pipeline, plan)
    expiring = expiring_messages(pipeline, plan.window.key, plan.splits)
    message = "; ".join([f"window {plan.window.key} can be read", *map(str, joining), *expiring])
    warns = expiring or any(topic.earlier_offsets for topic in joining)
    return Check("next", "warn" if warns else "ok", message)


def _windows(pipeline: Pipeline) -> Check:
    """Checks whether table and ledger have the same windows.

    They may differ after one of them was restored from a backup. It also warns of windows
    before committed ones that were refused or never run. A receipt that is lost or damaged
    fails the check.
    """
    series = find_series(committed.receipt for committed in pipeline.sink.receipts())
    for _, newest in series[-1:]:
        refuse_other_end(pipeline.ledger, newest)
    if pipeline.spec.window.is_batch:
        refuse_restored(pipeline)
    elif missing_windows := lost_windows(pipeline):
        return Check("windows", "warn", lost_in_words(pipeline, missing_windows).rstrip("."))
    elif gaps := find_uncommitted(pipeline.spec.window, series):
        return Check("windows", "warn", describe_uncommitted(gaps).rstrip("."))
    return Check("windows", "ok", "the table has all windows that the ledger knows as committed")


def sink_check(
    table: str, bound: TableOwner | None, pipeline: str, grid: str, ledger: str | None
) -> Check:
    """Checks whether the table belongs to this pipeline, grid and ledger.

    Args:
        table: the table's path or name.
        bound: the owner that is recorded in the table; None if there is no table.
        pipeline: the id of the pipeline.
        grid: its grid.
        ledger: the ledger's id; None if the ledger doesn't answer.

    Raises:
        GridError: the table was begun on another grid.
        OwnerError: the table belongs to another pipeline or ledger.
    """
    if bound is None:
        return Check(
            "sink",
            "ok",
            "windrow has no table there yet; the first run makes"
            " it, or takes an empty one that you made, if sink.kind can",
        )
    refuse_other_owner(
        table, bound, TableOwner(pipeline, bound.ledger if ledger is None else ledger, grid)
    )
    if ledger is None:
        return Check(
            "sink",
            "ok",
            f"the table is {pipeline}'s, {grid}; it is unknown whether it is of this ledger",
        )
    return Check("sink", "ok", f"the table is {pipeline}'s, {grid}, of this ledger")


def _check_rights(pipeline: Pipeline, *, ledger: bool) -> Iterator[Check]:
    """Checks the rights to describe and to read each topic, by doing both.

    The cluster also tells whether a right is missing that can't be tried: to read an empty
    topic, or to commit offsets to a consumer group.

    One message is read of each topic that isn't empty. Topics that aren't read any more
    cause a warning.
    """
    broker = pipeline.broker
    try:
        discovered = _discovered(pipeline, ledger=ledger)
        tps = discovered.tps
        starts, ends = broker.log_starts(tps), broker.stable_ends(tps)
        if isinstance(broker, TellsRights):
            broker.refuse_lacking(sorted(discovered.topics), pipeline.spec.source.offsets_group)
        reached = next_start(pipeline.ledger, pipeline.spec.id) if ledger else None
        topic_warnings = () if reached is None else unselected_topics(pipeline, reached)
    except WindrowError as error:
        yield failed_check("rights", error)
        return
    for warning in topic_warnings:
        message, _, fix = warning.rpartition(". ")
        yield Check("topics", "warn", message, fix)
    for topic in discovered.topics.values():
        filled = next(
            (tp for tp in tps if tp.topic == topic.topic and starts[tp] < ends[tp].offset), None
        )
        yield run_check(
            "rights",
            partial(
                _check_readable, broker, topic, filled, 0 if filled is None else starts[filled]
            ),
        )


def _check_readable(
    broker: Broker, topic: TopicInfo, filled: TopicPartition | None, start: int
) -> Check:
    if filled is None:
        return Check(
            "rights", "ok", f"{topic.topic} may be described; it is empty, so reading was not tried"
        )
    doubt = of_seconds(begin_of_log(broker, filled, start, start + 1))
    message = (
        f"{topic.topic} ({format_count(topic.partitions, 'partition')}) may be described and read"
    )
    return Check("rights", "warn" if doubt else "ok", f"{message}; {doubt}" if doubt else message)


def _retention(pipeline: Pipeline) -> Check:
    margin = retention_margin(pipeline)
    code = RefusedError.exit_code if margin.level == "fail" else 0
    return Check("retention", margin.level, margin.message, margin.advice, code)


def _lookups(pipeline: Pipeline) -> Check:
    """Checks how long the versions can be read to which the oldest open window is pinned."""
    window, sources = find_oldest_open_window(pipeline), pipeline.lookups()
    pins = [] if window is None else pipeline.ledger.pins(window, 0)
    if window is None or not pins:
        return Check("lookups", "ok", "the oldest open window looks up in the newest versions")
    for pin in pins:
        if pin.lookup not in sources or sources[pin.lookup].identity != pin.source:
            continue
        replaced_at = find_pin_end(pipeline, window, pin, sources[pin.lookup])
        if replaced_at is not None and pipeline.now() - replaced_at > LEAST_KEPT * 3 / 4:
            return Check(
                "lookups",
                "warn",
                f"window {window.key} is pinned to a version of {pin.source} that was replaced at"
                f" {instant(replaced_at)}; what maintains that table may remove it after"
                f" {LEAST_KEPT.days} days",
                "Run the window soon, or raise maintain.keep_versions of the pipeline that writes"
                " that table.",
            )
    message = f"the versions that window {window.key} is pinned to can be read"
    return Check("lookups", "ok", message)


def run_doctor(
    output: Output, path: Path | None, engine: SparkEngine | None = None, *, write: bool = False
) -> None:
    """Shows one line per check.

    Args:
        output: the command's output.
        path: the pipeline's file; None: only this machine is checked.
        engine: the Spark whose executors are checked, too.
        write: whether to write a file to each of the sink's places, and remove it.
    """
    checks = Examined([])
    for check in examine(path, engine, write=write):
        checks.checks.append(check)
        output.show(checks, check_line(check))
    output.exit_code = exit_code(checks.checks)


def rebuild_ledger(output: Output, path: Path) -> None:
    """Rebuilds the ledger from the receipts. The document is `Rebuilt`."""
    from windrow.ingest.admin.rebuild import rebuild

    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    rebuilt = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    summary = (
        f"The ledger holds the boundaries of {format_count(rebuilt.boundaries, 'label')}, plan and"
        f" receipt of {format_count(rebuilt.windows, 'window')} ({rebuilt.grid}); its id is"
        f" {rebuilt.ledger}."
    )
    output.show(rebuilt, Text("\n".join([summary, *rebuilt.notes])))
