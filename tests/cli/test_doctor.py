"""`windrow doctor`: each check says ok, warn or fail, and how to fix it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.message import Message
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import START, Stage, hour
from tests.registry.server import RegistryServer
from windrow.ingest.cli import doctor
from windrow.ingest.cli.doctor import Check, check_java, exit_code, run_check, sink_check
from windrow.ingest.errors import UnreachableError, format_count
from windrow.ingest.ledger.sql import SqlLedger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.source.enumerator.timestamp_search import UNSTAMPED, UNSTAMPED_WAY_OUT
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.partition_log import NO_TIMESTAMP


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the checks of the machine pass."""
    monkeypatch.setattr(doctor, "java_problem", lambda: None)
    monkeypatch.setattr(doctor, "java_untried", lambda: None)
    monkeypatch.setattr(doctor, "find_unprepared", lambda: None)


def levels(document: Any) -> dict[str, str]:
    """Returns the level of each check."""
    return {c["name"]: c["level"] for c in document["checks"]}


def test_all_well(stage: Stage) -> None:
    """All checks are ok on a good machine and a good pipeline, before and after the first run."""
    names = [
        "java",
        "prepared",
        "spec",
        "state",
        "sink",
        "windows",
        "broker",
        "rights",
        "next",
        "retention",
    ]
    assert levels(stage.json("doctor", stage.spec)) == dict.fromkeys(names, "ok")
    stage.json("run", stage.spec, "--window", hour(0))
    assert levels(stage.json("doctor", stage.spec)) == dict.fromkeys(names, "ok")


def files_of(folder: Path) -> dict[str, int]:
    """Returns all files and folders, with the time of the last change of their content."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_nothing_is_written(stage: Stage, tmp_path: Path) -> None:
    """Doctor writes nothing, not even the ledger's id; with `--write` it removes what it wrote."""
    files = files_of(tmp_path)
    document = stage.json("doctor", stage.spec)
    assert files_of(tmp_path) == files
    assert "without an id yet" in str(document)
    tried = stage.json("doctor", stage.spec, "--write")
    assert files_of(tmp_path).keys() == files.keys()
    assert levels(tried) == levels(document) | {"write": "ok"}


def test_without_spec(stage: Stage) -> None:
    """Without SPEC, doctor checks the machine only, and lists the extras that aren't installed."""
    assert list(levels(stage.json("doctor"))) == ["java", "prepared", "extras"]


def test_extras_that_are_missing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra is missing if one of its packages is missing, is too old, or lacks its own extra."""
    versions = {"windrow-ingest": "1", "half": "1", "old": "1", "inner": "1", "all": "2"}
    needs = {
        "windrow-ingest": [
            "base>=7",
            *('half>=1; extra == "a"', 'absent; extra == "a"', 'old>=2; extra == "b"'),
            *('inner[more]; extra == "c"', 'all[more]>=2; extra == "d"'),
        ],
        "inner": ['absent; extra == "more"', 'absent; extra == "other"'],
        "all": ['inner; extra == "more"', 'absent; extra == "other"'],
    }
    package_metadata = Message()
    for name in "abcd":
        package_metadata["Provides-Extra"] = name

    def distribution(name: str) -> Any:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(version=versions[name], requires=needs.get(name))

    monkeypatch.setattr(metadata, "metadata", lambda name: package_metadata)
    monkeypatch.setattr(metadata, "distribution", distribution)
    check = doctor.check_extras()
    assert check.level == "ok"
    assert (
        check.message == "installed: d; not installed, and needed by some pipelines only: a, b, c"
    )
    assert check.fix.endswith("pip install 'windrow-ingest[a,b,c]'")


def test_for_people(stage: Stage) -> None:
    """Without --json, each check is one line."""
    lines = stage.call("doctor", stage.spec).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * 10


def test_no_java(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, the line has advice, the other checks are made, and the exit code is 3.

    A version of Java that windrow wasn't tested with is a warning.
    """
    monkeypatch.setattr(
        doctor, "java_problem", lambda: "Java 17 or 21 is needed: apt-get install it"
    )
    document = stage.json("doctor", code=3)
    assert levels(document) == {"java": "fail", "prepared": "ok", "extras": "ok"}
    assert check_java("apt-get install it").message == "apt-get install it"
    monkeypatch.setattr(doctor, "java_problem", lambda: None)
    monkeypatch.setattr(doctor, "java_untried", lambda: "java is 25")
    assert levels(stage.json("doctor"))["java"] == "warn"


def test_bad_spec(stage: Stage) -> None:
    """A bad spec fails with 2, and its mistakes are listed."""
    Path(stage.spec).write_text("id: a b\n")
    document = stage.json("doctor", stage.spec, code=2)
    assert "line 1: id: must be" in document["checks"][-1]["what"]


@pytest.mark.parametrize(
    ("joining", "earlier_offsets", "passed_over"), [("start", 3, 1), ("window", 0, 4)]
)
def test_a_topic_that_joins_is_told_before_it_is_read(
    stage: Stage, joining: str, earlier_offsets: int, passed_over: int
) -> None:
    """`plan` and `doctor` say how many earlier messages a new topic brings, by `source.joining`.

    The receipt and verification say how many are in no window. Another pipeline can read these.
    """
    stage.write("topic_pattern: 'shop[.].*'")
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.broker.create_topic("shop.new", retention_ms=None)
    for minutes in (-1, 0, 1, 61, 121):
        timestamp = START + timedelta(minutes=minutes)
        stage.broker.produce(TopicPartition("shop.new", 0), b'{"id": 1}', timestamp=timestamp)
    stage.write(f"topic_pattern: 'shop[.].*', joining: {joining}")
    says = (
        f"shop.new joins in this window, which by source.joining reads {earlier_offsets} of its"
        f" offsets from before the window, and passes over {passed_over}"
    )
    (plan,) = stage.json("plan", stage.spec, "--window", hour(2))["plans"]
    assert plan["joining"] == [
        {"topic": "shop.new", "before": earlier_offsets, "passed_over": passed_over}
    ]
    people = " ".join(stage.call("plan", stage.spec, "--window", hour(2)).stdout.split())
    assert says in people
    (line,) = [c for c in stage.json("doctor", stage.spec)["checks"] if c["name"] == "next"]
    assert line["level"] == ("warn" if earlier_offsets else "ok")
    assert line["what"] == f"window {hour(2)} can be read; {says}"
    (run,) = stage.json("run", stage.spec, "--window", hour(2))["windows"]
    receipt = run["committed"]["receipt"]
    assert (receipt["counts"]["late"], receipt["passed_over"]) == (earlier_offsets, passed_over)
    people = " ".join(stage.call("plan", stage.spec, "--window", hour(2)).stdout.split())
    assert says in people
    assert "passed over" in stage.call("show", stage.spec).stdout
    (finding,) = stage.json("verify", stage.spec, "--deep")["findings"]
    assert finding["what"] == (
        f"No window has {format_count(passed_over, 'offset')} of shop.new[0], 0 to {passed_over}:"
        " the log had them before its topic joined in this window"
    )
    assert finding["level"] == "info"
    stage.write("topic: shop.new, start: earliest", "grid: batch")
    spec_text = Path(stage.spec).read_text().replace("id: things", "id: past")
    Path(stage.spec).write_text(spec_text.replace("lake/things", "lake/past"))
    (run,) = stage.json("run", stage.spec)["windows"]
    assert run["committed"]["receipt"]["counts"]["rows"] == 5


def test_messages_without_timestamps_are_told(stage: Stage, tmp_path: Path) -> None:
    """Messages without timestamps are reported by `doctor`, `lag` and `verify`.

    The pipeline that `infer` makes for the topic reads them.
    """
    stage.broker.create_topic("shop.old", partitions=2, retention_ms=None)
    stage.write("topic: shop.old")
    stage.json("run", stage.spec, "--window", hour(0))
    assert stage.json("lag", stage.spec)["unstamped"] == []
    assert stage.json("verify", stage.spec)["findings"] == []
    for i in range(3):
        value = b'{"id": %d}' % i
        stage.broker.produce(TopicPartition("shop.old", 0), value, timestamp=NO_TIMESTAMP)
    (check,) = [
        c for c in stage.json("doctor", stage.spec, code=2)["checks"] if c["name"] == "next"
    ]
    assert (check["level"], check["fix"]) == ("fail", UNSTAMPED_WAY_OUT)
    assert "one of its messages has a timestamp" in check["what"]
    (finding,) = stage.json("verify", stage.spec, code=1)["findings"]
    assert (finding["what"], finding["do"]) == (f"shop.old[0]: {UNSTAMPED}", UNSTAMPED_WAY_OUT)
    people = " ".join(stage.call("lag", stage.spec).stdout.split())
    assert f"shop.old[0]: {UNSTAMPED}. {UNSTAMPED_WAY_OUT}" in people
    stage.broker.produce(TopicPartition("shop.old", 1), b'{"id": 9}', timestamp=START)
    broker_options = ("--bootstrap", "127.0.0.1:1")
    inferred = stage.json("infer", "shop.old", str(tmp_path / "new"), *broker_options)
    assert inferred["grid"] == "batch"
    (run,) = stage.json("run", inferred["spec"], "--drain")["windows"]
    assert run["committed"]["receipt"]["counts"]["rows"] == 4
    assert stage.json("lag", inferred["spec"])["unstamped"] == []
    assert stage.json("verify", inferred["spec"])["findings"] == []


def test_cluster_down(stage: Stage) -> None:
    """Without the cluster, checks that need it aren't made, and the exit code is 3."""

    def down() -> str:
        raise UnreachableError("the cluster does not answer", "plan", "Start it.")

    stage.broker.cluster_id = down  # type: ignore[method-assign]
    document = stage.json("doctor", stage.spec, code=3)
    assert document["checks"][-1] == {
        "name": "broker",
        "level": "fail",
        "what": "the cluster does not answer",
        "fix": "Start it.",
        "exit_code": 3,
    }


def test_a_schema_registry(stage: Stage, schema_registry: RegistryServer) -> None:
    """A pipeline with a schema registry has a check for it, which fails if it doesn't answer.

    Another check warns if the records can't be known from the registry.
    """
    stage.write(f"topic: shop.things, registry: {{url: '{schema_registry.url}', retries: 0}}")
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("decode: {", "decode: {format: avro-confluent, "))
    assert levels(stage.json("doctor", stage.spec))["registry"] == "ok"
    document = stage.json("doctor", stage.spec)
    assert [check["level"] for check in document["checks"] if check["name"] == "records"] == [
        "warn"
    ]
    assert "decode.records: [NAME]" in stage.call("doctor", stage.spec).stdout
    schema_registry.register(
        "shop.things-value", '{"type": "record", "name": "Thing", "fields": []}'
    )
    assert "records" not in levels(stage.json("doctor", stage.spec))
    schema_registry.stop()
    assert levels(stage.json("doctor", stage.spec, code=3))["registry"] == "fail"


def test_a_topic_for_dead_letters(stage: Stage) -> None:
    """A pipeline with a topic for dead letters has a check for it; a missing topic fails with 2."""
    spec = Path(stage.spec)
    spec.write_text(spec.read_text() + "dead_letters: {topic: things.dead}\n")
    assert levels(stage.json("doctor", stage.spec))["dead letters"] == "ok"
    assert (
        "dead letters topic things.dead may be written" in stage.call("doctor", stage.spec).stdout
    )
    stage.dead_topic.is_there = False
    assert levels(stage.json("doctor", stage.spec, code=2))["dead letters"] == "fail"


def test_ledger_unreachable(stage: Stage) -> None:
    """A ledger that can't be opened fails as `state` with 3, and the other checks are made."""
    stage.json("run", stage.spec, "--window", hour(0))
    Path(stage.spec).write_text(Path(stage.spec).read_text() + "state: things.yaml/state.db\n")
    document = stage.json("doctor", stage.spec, code=3)
    level_by_check = dict(list(levels(document).items())[2:])
    assert level_by_check == {
        "spec": "ok",
        "state": "fail",
        "sink": "ok",
        "broker": "ok",
        "rights": "ok",
    }
    assert "it is unknown whether it is of this ledger" in next(
        c["what"] for c in document["checks"] if c["name"] == "sink"
    )


def test_a_bug_in_a_check(stage: Stage) -> None:
    """An unexpected exception fails its own check as a bug, without the exception's text.

    The other checks are made.
    """

    def broken() -> str:
        raise KeyError("secret")

    stage.broker.cluster_id = broken  # type: ignore[method-assign]
    checks = {c["name"]: c for c in stage.json("doctor", stage.spec, code=70)["checks"]}
    assert (checks["broker"]["level"], checks["sink"]["level"]) == ("fail", "ok")
    assert "KeyError: this is a bug in windrow" in checks["broker"]["what"]
    assert "secret" not in str(checks)


def test_sink_unwritable(stage: Stage) -> None:
    """A table that can't be written is found before the first run; the cluster is still checked."""
    (stage.folder / "lake").write_text("a file where the folder should be")
    document = stage.json("doctor", stage.spec, code=2)
    level_by_check = dict(list(levels(document).items())[2:])
    assert level_by_check == {
        "spec": "ok",
        "state": "ok",
        "sink": "fail",
        "broker": "ok",
        "rights": "ok",
    }
    assert "can't be written" in next(c["what"] for c in document["checks"] if c["name"] == "sink")


def test_dead_letters_unwritable(stage: Stage) -> None:
    """A table of dead letters that can't be written fails, too."""
    (stage.folder / "lake").mkdir()
    (stage.folder / "lake" / "things_dead").touch()
    assert levels(stage.json("doctor", stage.spec, code=2))["sink"] == "fail"


def test_unknown_topic(stage: Stage) -> None:
    """A topic that doesn't exist fails the rights, with exit code 2."""
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("shop.things", "shop.thongs"))
    assert levels(stage.json("doctor", stage.spec, code=2))["rights"] == "fail"


def test_may_not_read(stage: Stage) -> None:
    """A topic that may be described but not read fails the rights."""

    def refused(*_: object) -> Any:
        raise UnreachableError("topic authorization failed", "read", "Grant READ.")
        yield

    stage.broker.stamps = refused  # type: ignore[method-assign]
    assert levels(stage.json("doctor", stage.spec, code=3))["rights"] == "fail"


def test_empty_topic(stage: Stage) -> None:
    """On an empty topic, reading can't be tried, and the line says so."""
    stage.broker.recreate_topic("shop.things", 2)
    assert "it is empty" in str(stage.json("doctor", stage.spec))


def test_another_ledger(stage: Stage) -> None:
    """A table that another ledger began fails with advice."""
    stage.json("run", stage.spec, "--window", hour(0))
    (stage.folder / ".windrow" / "state.db").unlink()
    document = stage.json("doctor", stage.spec, code=1)
    sink = next(c for c in document["checks"] if c["name"] == "sink")
    assert "--rebuild-ledger" in sink["fix"]


def test_a_table_that_is_gone(stage: Stage) -> None:
    """A table that is missing, or that the spec doesn't name any more, fails with advice.

    A disk may not be mounted.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    (stage.folder / "lake").rename(stage.folder / "unmounted")
    sink = next(
        c for c in stage.json("doctor", stage.spec, code=1)["checks"] if c["name"] == "sink"
    )
    assert "isn't there, and the ledger knows 1 committed window of it" in sink["what"]
    assert "windrow rebind SPEC" in sink["fix"]
    assert f"windrow rebind {stage.spec} " in stage.call("doctor", stage.spec).stdout
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("lake/things", "lake/others"))
    sink = next(
        c for c in stage.json("doctor", stage.spec, code=1)["checks"] if c["name"] == "sink"
    )
    assert "the spec now names" in sink["what"]


def test_rebuild_without_table(stage: Stage) -> None:
    """Before the first run there is no table, so a rebuild is refused."""
    assert stage.json("doctor", stage.spec, "--rebuild-ledger", code=2)["error"][
        "message"
    ].startswith("There is no table yet")


@pytest.mark.parametrize(
    ("bound", "level"),
    [
        (None, "ok"),
        (TableOwner("p", "l", "hourly"), "ok"),
        (TableOwner("q", "l", "hourly"), "fail"),
        (TableOwner("p", "m", "hourly"), "fail"),
        (TableOwner("p", "l", "daily"), "fail"),
    ],
)
def test_sink_check(bound: TableOwner | None, level: str) -> None:
    """The table must belong to this pipeline, ledger and grid."""
    assert run_check("sink", lambda: sink_check("t", bound, "p", "hourly", "l")).level == level


def test_sink_check_without_ledger() -> None:
    """Without a ledger, pipeline and grid are still checked, and the line says what isn't known."""
    assert (
        "is unknown" in sink_check("t", TableOwner("p", "l", "hourly"), "p", "hourly", None).message
    )
    assert (
        run_check(
            "sink", lambda: sink_check("t", TableOwner("q", "l", "hourly"), "p", "hourly", None)
        ).level
        == "fail"
    )


def test_frozen_start_that_expired(stage: Stage) -> None:
    """A window whose frozen start was deleted by retention fails."""
    stage.json("run", stage.spec, "--window", hour(0))
    stage.broker.delete_records(TopicPartition("shop.things", 0), 4)
    assert levels(stage.json("doctor", stage.spec, code=1))["retention"] == "fail"


def test_deletes_that_compaction_may_have_taken(stage: Stage) -> None:
    """For a compacted topic and a table with a primary key, delete.retention.ms is checked.

    If rows are appended, nothing expires.
    """
    stage.broker.create_topic(
        "shop.people", compacted=True, retention_ms=None, delete_retention_ms=1000
    )
    schema = stage.folder / "schema.py"
    schema.write_text(f"{schema.read_text()}    name: pl.String\n")
    keyed = "decode: {key: {fields: [id]}, fields_include: except_key,"
    for sink, decode, level in (
        ("{path: lake/people}", "decode: {", "ok"),
        ("{path: lake/people, mode: upsert, primary_key: [id]}", keyed, "warn"),
    ):
        stage.write("topic: shop.people")
        text = Path(stage.spec).read_text().replace("{path: lake/things}", sink)
        Path(stage.spec).write_text(text.replace("decode: {", decode))
        check = stage.json("doctor", stage.spec)["checks"][-1]
        assert (check["name"], check["level"]) == ("retention", level)
        assert ("delete.retention.ms of shop.people" in check["what"]) == (level == "warn")


def test_exit_code_is_the_first_failure() -> None:
    """The exit code is that of the first failed check, because checks are sorted by
    what to fix first.
    """
    assert (
        exit_code(
            [Check("a", "ok", ""), Check("b", "fail", "", "", 3), Check("c", "fail", "", "", 1)]
        )
        == 3
    )
    assert exit_code([Check("a", "warn", "")]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--cluster"],
        ["--master", "local[1]"],
        ["--cluster", "--rebuild-ledger", "--master", "local[1]"],
    ],
)
def test_where_to_look_is_said_or_not(stage: Stage, words: list[str]) -> None:
    """`--cluster` and `--master` need each other, and `--rebuild-ledger` needs neither.

    An option without effect is refused.
    """
    assert stage.call("doctor", stage.spec, *words).exit_code == 2
    assert stage.call("doctor", *words).exit_code == 2


def test_the_ledger_is_read_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's copies of the receipts are read once, even if a window is missing.

    The receipts of the table tell which one.
    """
    for n in (0, 3):
        stage.json("run", stage.spec, "--window", hour(n))
    recorded, limits = SqlLedger.recorded_receipts, list[int | None]()

    def noted(ledger: SqlLedger, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        limits.append(newest)
        return recorded(ledger, pipeline_id, newest)

    monkeypatch.setattr(SqlLedger, "recorded_receipts", noted)
    assert levels(stage.json("doctor", stage.spec))["windows"] == "warn"
    assert limits.count(None) == 1


def test_a_lost_receipt(stage: Stage) -> None:
    """A lost receipt of any window fails the check of the windows, with advice."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    first, _ = sorted((stage.folder / "lake" / "things" / "_windrow" / "receipts").iterdir())
    first.unlink()
    checks = {c["name"]: c for c in stage.json("doctor", stage.spec, code=1)["checks"]}
    assert checks["windows"]["level"] == "fail"
    assert "--restore-receipts" in checks["windows"]["fix"]


def test_a_topic_that_is_not_read_any_more_is_told(stage: Stage) -> None:
    """A topic that the spec doesn't select any more is reported with its unread messages.

    For example, a spec was copied and only its topic was changed. `doctor`, `plan`, `lag` and
    the receipt report it, each once. With another id, as advised, nothing is reported.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.broker.create_topic("shop.new", retention_ms=None)
    for n in (2, 3):
        timestamp = START + timedelta(hours=n)
        stage.broker.produce(TopicPartition("shop.new", 0), b'{"id": 1}', timestamp=timestamp)
    stage.write("topic: shop.new")
    message = f"until {hour(2)}, and the spec doesn't select it any more: unread of its messages: 2"
    fix = "Another pipeline? Give it another id"
    says = f"shop.things was read {message}. {fix}"

    def doctor() -> list[tuple[str, str, str]]:
        checks = stage.json("doctor", stage.spec)["checks"]
        return [(c["level"], c["what"], c["fix"]) for c in checks if c["name"] == "topics"]

    assert doctor() == [("warn", f"shop.things was read {message}", fix)]
    assert stage.json("lag", stage.spec)["unselected"] == [says]
    for verb, more in (
        ("plan", ("--window", hour(2))),
        ("lag", ()),
        ("run", ("--window", hour(2))),
    ):
        assert f"{says}." in " ".join(stage.call(verb, stage.spec, *more).stdout.split()) + ".", (
            verb
        )
    (shown,) = stage.json("show", stage.spec, "--window", hour(2))["windows"]
    assert shown["receipt"]["warnings"] == [says]
    earlier = says.replace(f"until {hour(2)}", "earlier")
    assert stage.json("lag", stage.spec)["unselected"] == [earlier]
    (run,) = stage.json("run", stage.spec, "--window", hour(3))["windows"]
    assert run["committed"]["receipt"]["warnings"] == []
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("things", "others"))
    (run,) = stage.json("run", stage.spec, "--window", hour(2))["windows"]
    assert run["committed"]["receipt"]["warnings"] == []
    assert (doctor(), stage.json("lag", stage.spec)["unselected"]) == ([], [])


def test_a_topic_that_is_not_read_any_more_may_be_out_of_reach(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the unselected topic can't be described, the window is committed with a warning."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.broker.create_topic("shop.new", retention_ms=None)
    stage.write("topic: shop.new")
    topics = MemoryBroker.topics

    def some(broker: MemoryBroker, names: Sequence[str]) -> dict[str, TopicInfo]:
        if "shop.things" in names:
            raise UnreachableError("may not be described", "plan", "Ask for the right.")
        return topics(broker, names)

    monkeypatch.setattr(MemoryBroker, "topics", some)
    (run,) = stage.json("run", stage.spec, "--window", hour(2))["windows"]
    (warning,) = run["committed"]["receipt"]["warnings"]
    assert "any more: unread of its messages: an unknown number." in warning
    assert stage.json("lag", stage.spec)["unselected"] == []


def test_timestamps_in_seconds_are_told(stage: Stage) -> None:
    """Timestamps in seconds instead of milliseconds make `doctor` ask about them."""
    stage.broker.create_topic("shop.sec", retention_ms=None)
    stamp = datetime.fromtimestamp(START.timestamp() / 1000, UTC)
    stage.broker.produce(TopicPartition("shop.sec", 0), b'{"id": 1}', timestamp=stamp)

    def rights() -> list[tuple[str, bool]]:
        checks = stage.json("doctor", stage.spec)["checks"]
        asks = "stamped 1970-01-21: are these seconds, not milliseconds?"
        return [(c["level"], asks in c["what"]) for c in checks if c["name"] == "rights"]

    assert rights() == [("ok", False)]
    stage.write("topic: shop.sec")
    assert rights() == [("warn", True)]


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        ("{path: lake/things/inner}", "would lie inside"),
        ("{kind: files, format: jsonl, path: lake/things/deep/inner}", "would lie inside"),
        ("{kind: sqlite, path: lake/things/inner.sqlite, table: inner}", "would lie inside"),
        ("{path: lake}", "would lie inside"),
        ("{kind: files, format: jsonl, path: lake/things}", "a table of another kind"),
    ],
)
def test_tables_that_share_a_folder_are_refused(stage: Stage, sink: str, says: str) -> None:
    """A table inside another table's folder is refused by `doctor`, `plan` and `run`.

    Nothing is written. A vacuum of the outer table would remove the inner table's files. A
    separate folder works.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("id: things", "id: inner"))
    stage.sink(sink)
    files_before = sorted(Path("lake").rglob("*"))
    for verb in ("run", "plan"):
        error = stage.json(verb, stage.spec, "--window", hour(1), code=2)["error"]
        assert says in error["message"]
        assert f"{stage.folder}/lake/things" in error["message"]
    checks = stage.json("doctor", stage.spec, code=2)["checks"]
    assert [says in c["what"] for c in checks if c["name"] == "sink"] == [True]
    assert sorted(Path("lake").rglob("*")) == files_before
    stage.sink(sink.replace("path: lake", "path: beside"))
    Path("beside").mkdir(exist_ok=True)
    stage.json("run", stage.spec, "--window", hour(1))
    assert stage.json("verify", stage.spec)["findings"] == []
