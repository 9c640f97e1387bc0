"""The checks of `windrow doctor`: one line each, with the fix.

What decides is pure; `examine` fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from packaging.requirements import Requirement
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.retention_margin import next_window, retention_margin
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import (
    BugError,
    NotClosedError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.kafka.embedded.server import java_problem
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.ports.sink import Warns
from windrow.ingest.registry.client import Registry
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.micro_batches import preview_next
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.runner.ownership import (
    lost_in_words,
    lost_windows,
    refuse_other_table,
    refuse_restored,
    refuse_unfit_table,
    refuse_unwritable,
)
from windrow.ingest.runner.pipeline import preview, refuse_open
from windrow.ingest.runner.schemas import decoder_for
from windrow.ingest.source.enumerator.topics import Discovered, discover

if TYPE_CHECKING:
    from windrow.ingest.admin.executors import Surveyed
    from windrow.ingest.runner.spark.spark import SparkEngine


class Check(msgspec.Struct, frozen=True):
    """One line. `exit_code`: what the command ends with if this failed."""

    name: str
    level: Literal["ok", "warn", "fail"]
    what: str
    fix: str = ""
    exit_code: int = 0


class Examined(msgspec.Struct):
    """The document of `doctor`."""

    checks: list[Check]


def exit_code(checks: Iterable[Check]) -> int:
    """The exit code of the first check that failed; 0 if none did."""
    return next((c.exit_code for c in checks if c.level == "fail"), 0)


def check_line(check: Check) -> Text:
    """`ok    java    ...`."""
    style = {"ok": "green", "warn": "yellow", "fail": "red"}[check.level]
    text = Text(f"{check.level:5}", style=style).append(f"{check.name:13}", style="bold")
    return text.append(f"{check.what}{f'. {check.fix}' if check.fix else ''}", style="default")


def examine(spec: Path | None, engine: SparkEngine | None = None) -> Iterator[Check]:
    """All checks, each as soon as it is done; those that need a failed one are left out.

    `engine`: the Spark that tasks will run on, to check its executors too.
    """
    yield java(java_problem())
    yield attempt("packages", lambda: pins(metadata.requires("windrow-ingest") or [], _installed))
    if spec is None:
        return
    try:
        pipeline = assemble.assemble(load_spec(spec))
    except WindrowError as error:
        yield failed("spec", error)
        return
    yield Check("spec", "ok", f"{spec} is pipeline {pipeline.spec.id}")
    found = list[Check]()
    for check in _pipeline(pipeline):
        found.append(check)
        yield check
    if engine is not None and not exit_code(found):
        yield from _executors(pipeline, engine)


def _executors(pipeline: Pipeline, engine: SparkEngine) -> Iterator[Check]:
    from windrow.ingest.admin.executors import look_around

    try:
        topics = _discovered(pipeline)
        surveyed = look_around(pipeline, engine, engine.slots, topics)
    except WindrowError as error:
        yield failed("executors", error)
        return
    yield from executors(surveyed)


def executors(surveyed: Surveyed) -> Iterator[Check]:
    """One line for the executors that answered, and one for each problem, with its
    machines.
    """
    pythons = ", ".join(sorted({seen.python for seen in surveyed.executors}))
    who = (
        f"{_many(len(surveyed.executors), 'executor')} on {_some(surveyed.machines)} answered, with"
        f" {pythons}"
    )
    more = "" if surveyed.complete else ", and others may be there"
    read = (
        f"{_many(surveyed.read, 'topic-partition')} tried"
        if surveyed.read
        else "no broker tried, for there is no message yet"
    )
    written = (
        f"{_many(surveyed.written, 'place')} of the sink"
        if surveyed.written
        else "no place of the sink"
    )
    what = f"{who}{more}; code and packages are as here; {read}, {written}"
    yield Check("executors", "ok" if surveyed.complete else "warn", what)
    for trouble, where in surveyed.troubles.items():
        yield Check(
            "executors",
            "fail",
            f"on {_some(where)}: {trouble.what}",
            trouble.do,
            UnreachableError.exit_code,
        )


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _some(machines: Sequence[str], most: int = 3) -> str:
    """The names of the first few, and how many more there are."""
    rest = len(machines) - most
    return ", ".join(machines[:most]) + (f" and {rest} more" if rest > 0 else "")


def _pipeline(pipeline: Pipeline) -> Iterator[Check]:
    """Ledger, table and cluster are judged apart; what needs more than one of them
    waits for those.
    """
    state = attempt("state", lambda: Check("state", "ok", f"ledger {pipeline.ledger.identity()}"))
    yield state
    sink = attempt(
        "sink", lambda: _sink(pipeline, pipeline.ledger.identity() if state.level == "ok" else None)
    )
    yield sink
    if "fail" not in {state.level, sink.level}:
        yield attempt("windows", lambda: _windows(pipeline))
    broker = attempt(
        "broker", lambda: Check("broker", "ok", f"cluster {pipeline.broker.cluster_id()}")
    )
    yield broker
    topic = pipeline.dead_topic
    if topic is not None:
        yield attempt("dead letters", lambda: _dead_topic(topic))
    registry = pipeline.spec.registry
    if registry is not None:
        yield attempt("registry", lambda: _registry(registry))
    if broker.level == "fail":
        return
    rights = list(_rights(pipeline, ledger=state.level == "ok"))
    yield from rights
    if registry is not None and "fail" not in {state.level, *(check.level for check in rights)}:
        yield from _records(pipeline)
    if "fail" not in {state.level, sink.level, *(check.level for check in rights)}:
        yield attempt("next", lambda: _next_window(pipeline))
        yield attempt("retention", lambda: _retention(pipeline))


def _discovered(pipeline: Pipeline, *, ledger: bool = True) -> Discovered:
    source = pipeline.spec.source
    start = next_start(pipeline.ledger, pipeline.spec.id) if ledger else None
    return discover(pipeline.broker, source.selection(), start, source.on_removed)


def _dead_topic(topic: DeadTopic) -> Check:
    topic.refuse_unwritable()
    return Check("dead letters", "ok", f"topic {topic.name} may be written")


def _records(pipeline: Pipeline) -> Iterator[Check]:
    """A line where nothing says of which record the messages are.

    No failure: of a topic that is new there is no schema yet.
    """
    try:
        found = _discovered(pipeline)
    except WindrowError:
        return  # as the lines about the topics say
    try:
        decoder_for(pipeline, sorted(found.topics))
    except SpecError as error:
        yield Check("records", "warn", error.what, error.do)
    except WindrowError:
        return  # as the registry's line says


def _registry(registry: Registry) -> Check:
    registry.of_subject("windrow-doctor", 1)  # which needn't be there: who answers that answers
    return Check("registry", "ok", f"{registry.url} answers")


def attempt(name: str, check: Callable[[], Check]) -> Check:
    """A check that may meet one of windrow's errors: that is its result then."""
    try:
        return check()
    except WindrowError as error:
        return failed(name, error)
    except metadata.PackageNotFoundError:
        return Check(
            name,
            "fail",
            "the distribution windrow-ingest is not installed",
            "Install it: pip install windrow-ingest.",
            2,
        )
    except Exception as error:  # reported, and no reason to leave the other checks out  # noqa: BLE001
        return failed(name, BugError.of(error, "setup"))


def failed(name: str, error: WindrowError) -> Check:
    """An error as a failed check."""
    if "\n" in error.what:
        return Check(name, "fail", str(error), exit_code=error.exit_code)
    # with its place
    what = error.what if error.topic is None else str(error).removesuffix(f". {error.do}")
    return Check(name, "fail", what, error.do, error.exit_code)


# --------------------------------------------------------------------------------------------------


def java(problem: str | None) -> Check:
    """Java for Spark and the embedded broker."""
    return (
        Check("java", "ok", "found, of a version that Spark runs on")
        if problem is None
        else Check("java", "fail", problem, exit_code=3)
    )


def pins(requires: Iterable[str], installed: Callable[[str], str | None]) -> Check:
    """Installed versions against what the distribution asks for; extras only count
    where they were asked for.
    """
    wanted = [
        r
        for r in map(Requirement, requires)
        if r.marker is None or r.marker.evaluate({"extra": ""})
    ]
    wrong = []
    for requirement in wanted:
        has = installed(requirement.name)
        if has is None:
            wrong.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(has, prereleases=True):
            wrong.append(f"{requirement.name} is {has}, wanted is {requirement.specifier}")
    if wrong:
        return Check(
            "packages",
            "fail",
            "; ".join(wrong),
            "Install the project's requirements into this environment again.",
            2,
        )
    return Check("packages", "ok", f"{len(wanted)} requirements are met")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# --------------------------------------------------------------------------------------------------


def _sink(pipeline: Pipeline, ledger: str | None) -> Check:
    refuse_unwritable(pipeline)
    spec, sink = pipeline.spec, pipeline.sink
    check = sink_check(spec.sink_path(), sink.owner(), spec.id, spec.window.grid, ledger)
    if ledger is not None:
        refuse_other_table(pipeline)
    level, lines = check.level, [check.what]
    delivery = sink.capabilities.delivery
    if delivery != "exactly-once":
        missing = "" if delivery == "at-least-once" else ", or be missing"
        lines.append(f"its rows may be there twice{missing}: delivery_guarantee is {delivery}")
        level = level if delivery == "at-least-once" else "warn"
    if isinstance(sink, Warns) and (warnings := sink.warnings()):
        lines += warnings
        level = "warn"
    if new := refuse_unfit_table(pipeline):
        lines.append(f"the next rows change its columns: {', '.join(new)}")
    return msgspec.structs.replace(check, what="; ".join(lines), level=level)


def _next_window(pipeline: Pipeline) -> Check:
    """The window that a run would read next."""
    grid = pipeline.spec.window
    if isinstance(grid, MicroBatches):
        plan = preview_next(pipeline)
        return Check(
            "next",
            "ok",
            "no micro-batch is waiting" if plan is None else f"{plan.window.key} can be read",
        )
    window = next_window(pipeline, grid)
    try:
        refuse_open(pipeline, window)
    except NotClosedError:
        return Check(
            "next", "ok", f"window {window.key} isn't closed yet, all before it are committed"
        )
    preview(pipeline, window)
    return Check("next", "ok", f"window {window.key} can be read")


def _windows(pipeline: Pipeline) -> Check:
    """Whether table and ledger know the same windows; where one was restored from a
    backup, they may not.
    """
    if pipeline.spec.window.is_batch:
        refuse_restored(pipeline)
    elif lost := lost_windows(pipeline):
        return Check("windows", "warn", lost_in_words(pipeline, lost).rstrip("."))
    return Check("windows", "ok", "the table has all windows that the ledger knows as committed")


def sink_check(
    table: str, bound: TableOwner | None, pipeline: str, grid: str, ledger: str | None
) -> Check:
    """Whether the table is this pipeline's, on its grid, and bound to its ledger; None:
    the ledger did not tell its name.

    Raises:
        GridError, OwnerError: it isn't.
    """
    if bound is None:
        return Check("sink", "ok", "there is no table yet; the first run makes it")
    refuse_other_owner(
        table, bound, TableOwner(pipeline, bound.ledger if ledger is None else ledger, grid)
    )
    if ledger is None:
        return Check(
            "sink",
            "ok",
            f"the table is {pipeline}'s, {grid}; whether of this ledger is unknown without it",
        )
    return Check("sink", "ok", f"the table is {pipeline}'s, {grid}, of this ledger")


def _rights(pipeline: Pipeline, *, ledger: bool) -> Iterator[Check]:
    """Describe and read, by doing both, for each topic: the first message of its first
    topic-partition that has any.
    """
    broker = pipeline.broker
    try:
        found = _discovered(pipeline, ledger=ledger)
        starts, ends = broker.log_starts(found.tps), broker.stable_ends(found.tps)
    except WindrowError as error:
        yield failed("rights", error)
        return
    for topic in found.topics.values():
        filled = next(
            (tp for tp in found.tps if tp.topic == topic.topic and starts[tp] < ends[tp].offset),
            None,
        )
        yield attempt(
            "rights",
            partial(_readable, broker, topic, filled, 0 if filled is None else starts[filled]),
        )


def _readable(broker: Broker, topic: TopicInfo, filled: TopicPartition | None, start: int) -> Check:
    if filled is None:
        return Check(
            "rights", "ok", f"{topic.topic} may be described; it is empty, so reading was not tried"
        )
    next(iter(broker.stamps(filled, start, start + 1)), None)
    return Check(
        "rights", "ok", f"{topic.topic} ({topic.partitions} partitions) may be described and read"
    )


def _retention(pipeline: Pipeline) -> Check:
    found = retention_margin(pipeline)
    return Check(
        "retention",
        found.level,
        found.what,
        found.do,
        RefusedError.exit_code if found.level == "fail" else 0,
    )


def run_doctor(output: Output, path: Path | None, engine: SparkEngine | None = None) -> None:
    """One line per check.

    `engine`: where the pipeline's tasks are to run, if that is looked at, too.
    """
    checks = Examined([])
    for check in examine(path, engine):
        checks.checks.append(check)
        output.show(checks, check_line(check))
    output.exit_code = exit_code(checks.checks)


def rebuild_ledger(output: Output, path: Path) -> None:
    """The ledger, restored from the receipts; its document is `Rebuilt`."""
    from windrow.ingest.admin.rebuild import rebuild

    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    done = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    what = (
        f"The ledger holds {done.boundaries} boundaries, {done.windows} plans and receipts"
        f" ({done.grid}); its id is {done.ledger}."
    )
    output.show(done, Text("\n".join([what, *done.notes])))
