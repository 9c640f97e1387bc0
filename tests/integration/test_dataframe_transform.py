"""The `spark` step: a function of DataFrames gets a window's rows, exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.harness import HERE, PipelineSetup, hour, millis, read_visible, verdict
from tests.integration.test_spark_task import kill_with_all_below, wait_until_a_worker_halts
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.servers import serving
from tests.shape.readme import ROOT, blocks
from windrow.ingest.admin.dead_replay import DeadReplayRequest, replay_dead_letters
from windrow.ingest.admin.verify import verify
from windrow.ingest.assemble import assemble
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark import checkpoint
from windrow.ingest.runner.spark.checkpoint import (
    LOST_ROWS,
    rows_of_counted_tries,
    session_of_its_own,
)
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.testing.engine import LocalEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def topic(kafka: str) -> str:
    """A topic of two partitions.

    One hour has ten rows and a malformed message, the next hour has one row.
    """
    topic = create_topic(kafka, 2)
    puts = [
        Put(json.dumps({"id": n, "name": f"n{n % 3}"}).encode(), millis(1, n), n % 2)
        for n in range(10)
    ]
    produce(
        kafka,
        topic,
        [*puts, Put(b"poison", millis(1, 30), 1), Put(b'{"id": 99, "name": "n0"}', millis(2), 0)],
    )
    return topic


@pytest.fixture
def make_setup(kafka: str, topic: str, tmp_path: Path) -> Any:
    """`make_setup(function, ...)`: a pipeline with a `spark` step, in splits of three messages."""

    def make(function: str, **over: Any) -> PipelineSetup:
        transform = {"steps": [{"spark": f"functions.py:{function}"}]} | (
            {"schema": over.pop("schema")} if "schema" in over else {}
        )
        return PipelineSetup(
            kafka, topic, tmp_path, {"transform": transform, "source": {"split_records": 3}, **over}
        )

    return make


@pytest.fixture
def on_spark(spark: SparkSession) -> Any:
    """A function that assembles a setup's pipeline on the tests' Spark session."""
    return lambda setup: assemble(setup.spec(), SparkEngine(lambda: spark.sparkContext))


def run_window(pipeline: Pipeline, setup: PipelineSetup, n: int = 1) -> Result:
    return run(pipeline, setup.window(n), Request("test"))


def table(setup: PipelineSetup) -> list[dict[str, Any]]:
    """Returns the rows of a setup's table."""
    rows: list[dict[str, Any]] = (
        DeltaTable(str(setup.folder / "things")).to_pyarrow_table().to_pylist()
    )
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_one_row_of_each_name(make_setup: Any, on_spark: Any) -> None:
    """A function may deduplicate the rows of all splits of a window.

    Its rows are committed with the exact range, and each message is counted once.
    """
    setup = make_setup("latest")
    pipeline = on_spark(setup)
    receipt = run_window(pipeline, setup).committed.receipt
    assert [
        (row["id"], row["name"], row["_partition"], row["_offset"]) for row in table(setup)
    ] == [
        (8, "n2", 0, 4),
        (7, "n1", 1, 3),
        (9, "n0", 1, 4),
    ]
    counts = receipt.counts
    assert (counts.read, counts.valid, counts.rows, counts.filtered, counts.dead) == (
        11,
        3,
        3,
        7,
        1,
    )
    assert all(s.read == s.valid + s.filtered + s.dead for s in receipt.splits)
    assert len(receipt.splits) == 4
    verification = verify(
        "things", pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker, deep=True
    )
    assert not [finding for finding in verification.findings if finding.level == "wrong"]
    assert run_window(pipeline, setup).recovered
    assert run_window(pipeline, setup, 2).committed.receipt.counts.rows == 1


def test_its_rows_go_into_several_tables_of_one_database(make_setup: Any, on_spark: Any) -> None:
    """A function's rows are divided among tables that show a window at once, and replayed."""
    setup = make_setup("latest")
    database = setup.folder / "things.sqlite"
    tables = {name: {"kind": "sqlite", "path": str(database), "table": name} for name in "ab"}
    route = {"values": ["n0", "n1"], "sink": tables["a"]}
    sink = {"kind": "routes", "by": "column", "name": "name", "tables": [route]}
    spec = setup.spec().model_copy(update={"sink": _sink({**sink, "other": tables["b"]})})
    pipeline = assemble(spec, on_spark(setup).engine)
    run_window(pipeline, setup)
    again = run(pipeline, setup.window(1), Request("again", replace=True))
    assert again.committed.receipt.counts.rows == 3
    with closing(sqlite3.connect(database)) as connection:
        rows = [set(connection.execute(f"SELECT id, name FROM {name}")) for name in "ab"]
    assert rows == [{(7, "n1"), (9, "n0")}, {(8, "n2")}]


def test_event_times_are_those_of_the_rows_that_it_is_given(
    make_setup: Any, on_spark: Any, kafka: str, topic: str
) -> None:
    """Messages count by the event times of their rows before the function, also if it leaves them
    out; dead letters and rows without an event time count by their timestamps.
    """
    events = [hour(0) + timedelta(minutes=30), hour(1) + timedelta(minutes=50), hour(2)]
    values = [json.dumps({"id": 7, "created_at": event.isoformat()}) for event in events]
    produce(kafka, topic, [Put(value.encode(), millis(1, 40), 1) for value in values])
    setup = make_setup(
        "nothing", decode={"schema": "things.py:Dated"}, window={"event_time": "created_at"}
    )
    receipt = run_window(on_spark(setup), setup).committed.receipt
    assert (receipt.event_time, receipt.counts.late, receipt.counts.early) == ("created_at", 1, 1)
    assert [late for s in receipt.splits for late in s.late_by] == [(setup.window(0).key, 1)]
    assert max(s.latest_event for s in receipt.splits if s.latest_event) == events[1]
    assert min(s.min_timestamp for s in receipt.splits if s.min_timestamp) == events[0]
    assert max(s.max_timestamp for s in receipt.splits if s.max_timestamp) == events[2]
    assert (receipt.counts.rows, sum(s.stamped_late for s in receipt.splits)) == (0, 0)


def test_all_rows_come_through(make_setup: Any, on_spark: Any) -> None:
    """Rows that the function doesn't change are staged as without a function.

    They pass a shuffle and a UDF of the function's file, and their columns are reordered.
    """
    setup = make_setup("same")
    receipt = run_window(on_spark(setup), setup).committed.receipt
    assert [(row["id"], row["_partition"], row["_offset"]) for row in table(setup)] == [
        (2 * n + p, p, n) for p in (0, 1) for n in range(5)
    ]
    assert [(s.rows, s.filtered) for s in receipt.splits] == [(s.valid, 0) for s in receipt.splits]
    assert receipt.counts.valid == 10


def test_a_message_becomes_several_rows_or_none(make_setup: Any, on_spark: Any) -> None:
    """A function may return more rows than messages, and each row is counted."""
    setup = make_setup("twice")
    counts = run_window(on_spark(setup), setup).committed.receipt.counts
    assert (counts.valid, counts.rows, counts.filtered) == (10, 20, 0)


def test_no_row_is_left(make_setup: Any, on_spark: Any) -> None:
    """A window whose function returns no row is committed with its range."""
    setup = make_setup("nothing")
    counts = run_window(on_spark(setup), setup).committed.receipt.counts
    assert (counts.read, counts.valid, counts.rows, counts.filtered) == (11, 0, 0, 10)


def test_the_example_runs(kafka: str, topic: str, on_spark: Any, tmp_path: Path) -> None:
    """The example of docs/dataframes.md runs unchanged."""
    page = (ROOT / "docs" / "dataframes.md").read_text(encoding="utf-8")
    (tmp_path / "newest.py").write_text(
        next(code for code in blocks("python", page) if "def newest" in code)
    )
    produce(kafka, topic, [Put(b'{"id": 3, "name": "again"}', millis(1, 40), 1)])
    setup = PipelineSetup(
        kafka,
        topic,
        tmp_path,
        {"transform": {"steps": [{"spark": str(tmp_path / "newest.py:newest")}]}},
    )
    run_window(on_spark(setup), setup)
    assert {row["id"]: row["name"] for row in table(setup)} == {
        **{n: f"n{n % 3}" for n in range(10)},
        3: "again",
    }


def test_columns_of_a_schema_of_its_own(make_setup: Any, on_spark: Any) -> None:
    """The table has the columns of `transform.schema`, which are known before anything is read."""
    setup = make_setup("wider", schema="things.py:Wider")
    run_window(on_spark(setup), setup)
    assert [(row["name"], row["extra"]) for row in table(setup)][:3] == [
        ("n0", "4"),
        ("n2", "3"),
        ("n1", "3"),
    ]


def test_what_no_column_is_for(make_setup: Any, on_spark: Any) -> None:
    """The function is given the text of `unknown: keep` as a column, and the table has it."""
    setup = make_setup("same", decode={"schema": "things.py:Other", "unknown": "keep"})
    run_window(on_spark(setup), setup)
    assert [(row["id"], row["_rest"]) for row in table(setup)] == [
        (n, f'{{"name": "n{n % 3}"}}') for n in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
    ]


def test_what_was_read_is_kept_for_the_window(
    make_setup: Any, on_spark: Any, spark: SparkSession
) -> None:
    """The rows that windrow persists aren't part of Spark's cache.

    They are released after the window. Any function, and any client of a server, may clear the
    cache.
    """
    setup, persisted_rdds = make_setup("forgets"), spark.sparkContext._jsc.getPersistentRDDs  # noqa: SLF001
    count_before = persisted_rdds().size()
    assert run_window(on_spark(setup), setup).committed.receipt.counts.rows == 10
    assert persisted_rdds().size() == count_before


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "function",
    [
        lambda rows: rows,
        lambda rows: rows.where("id > 0").select("id"),
        lambda rows: rows.join(rows.sparkSession.range(9), "id"),
        lambda rows: rows.groupBy("id").count(),
    ],
)
def test_rows_of_another_try(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame]
) -> None:
    """A function fails if Spark kept the rows of another try than the counted one.

    Such a try may have, say, half of a split's rows. The function fails whatever it selects.
    """
    columns = "windrow_index long, windrow_outcome string, windrow_try long, id long"
    session = spark.newSession()
    # Whole-stage codegen is off, as for a hundred columns: Spark then first checks for an id.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    kept_rows = session.createDataFrame(
        [(0, None, None, 1), (0, "failed", 6, None)], columns
    ).localCheckpoint()
    assert [row.id for row in function(rows_of_counted_tries(kept_rows, [5, 6])).collect()] == [1]
    with pytest.raises(Exception, match=LOST_ROWS):
        function(rows_of_counted_tries(kept_rows, [5, 7])).collect()


@pytest.fixture
def client(spark_server: str) -> Iterator[ConnectedSpark]:
    """A client of a Spark Connect server."""
    with closing(ConnectedSpark(spark_server)) as spark:
        yield spark


def reads_of(setup: PipelineSetup) -> int:
    """Counts the reads of the split with the malformed message.

    Each read leaves its own file of dead letters.
    """
    return len(list((setup.folder / "things_dead" / "data").rglob("*.parquet")))


def assert_names_are_utc(setup: PipelineSetup) -> None:
    names = [row["name"] for row in table(setup)]
    assert names == [f"1970-01-01 00:00:00 {row['_timestamp']:%H:%M} 12:00" for row in table(setup)]


def test_a_function_has_no_zone_of_the_machine(make_setup: Any, on_spark: Any) -> None:
    """Local time is UTC in the workers and in the driver, wherever they run."""
    setup = make_setup("local_times")
    run_window(on_spark(setup), setup)
    assert_names_are_utc(setup)


def test_a_function_has_no_zone_of_a_server(make_setup: Any, client: ConnectedSpark) -> None:
    """Local time is UTC on a Spark Connect server too, on any machine."""
    setup = make_setup("local_times")
    run_window(assemble(setup.spec(), SparkEngine(client.session)), setup)
    assert_names_are_utc(setup)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("function", "rows"), [("same", 10), ("latest", 3), ("twice", 20), ("forgets", 10)]
)
def test_on_a_server(make_setup: Any, client: ConnectedSpark, function: str, rows: int) -> None:
    """Each split is read once on a server, although the server plans each sent DataFrame again.

    The server's other sessions keep their settings.
    """
    setup, read_conf = make_setup(function), client.session().conf.getAll
    assert (
        run_window(
            assemble(setup.spec(), SparkEngine(client.session)), setup
        ).committed.receipt.counts.rows
        == rows
    )
    assert len(table(setup)) == rows
    assert reads_of(setup) == 1
    assert client.session().conf.getAll == read_conf


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("function", "match"),
    [
        ("fails", r"fails: AnalysisException, \w+(?!.*dataframe_transform.py)"),
        (
            "breaks",
            (
                r"A UDF of the function functions.py:breaks .* fails on a worker:"
                r" ValueError(?!.*secret)"
            ),
        ),
    ],
)
def test_what_fails_on_a_server(
    make_setup: Any, client: ConnectedSpark, function: str, match: str
) -> None:
    """A function that fails on a server refuses the window with the same error as locally."""
    setup = make_setup(function)
    with pytest.raises(SpecError, match=match):
        run_window(assemble(setup.spec(), SparkEngine(client.session)), setup)
    assert not table(setup)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("function", "kind", "match"),
    [
        (
            "placeless",
            SpecError,
            r"other columns .*: _offset: missing; more: int, and there is no such column",
        ),
        ("elsewhere", RefusedError, r"a row of a message that is none of the window's"),
        ("negative", RefusedError, r"is refused: check:id:"),
        ("nulled", RefusedError, r"has null in id, which is never null"),
        ("fails", SpecError, r"fails: AnalysisException, \w+.* \(.*functions.py:\d+\)"),
        (
            "breaks",
            SpecError,
            (
                r"A UDF of the function functions.py:breaks .* fails on a worker:"
                r" ValueError(?!.*secret)"
            ),
        ),
        (
            "loses",
            UnreachableError,
            r"Spark lost what was read of the window.* Nothing was committed. Run the window again",
        ),
        (
            "looks",
            UnreachableError,
            r"Spark lost what was read of the window.* Nothing was committed. Run the window again",
        ),
        ("no_frame", SpecError, r"gave int, and no DataFrame"),
    ],
)
def test_what_a_function_may_not_do(
    make_setup: Any, on_spark: Any, function: str, kind: type[Exception], match: str
) -> None:
    """A function that breaks a rule refuses the window, and nothing becomes visible.

    The error has the message's place if it is known.
    """
    setup = make_setup(function)
    with pytest.raises(kind, match=match):
        print(run_window(on_spark(setup), setup), table(setup))  # Printed if nothing is raised.
    assert not table(setup)


@pytest.mark.long
def test_a_server_that_is_killed_while_the_function_asks_it(
    make_setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that dies during the function's call raises UnreachableError.

    It isn't taken for a mistake of the function.
    """
    setup = make_setup("goes")
    with serving() as (address, command), closing(ConnectedSpark(address)) as spark:
        monkeypatch.setenv("SERVER_TO_KILL", str(command.pid))
        with pytest.raises(
            UnreachableError,
            match=(
                r"Spark was gone while the function functions.py:goes .* was called"
                r" \(SparkConnectGrpc"
            ),
        ):
            run_window(assemble(setup.spec(), SparkEngine(spark.session)), setup)
    assert not table(setup)


def test_the_active_session_stays_the_users(spark: SparkSession) -> None:
    """After windrow's work in a session of its own, the thread's active session is the user's.

    Spark finds the data sources that the user has registered in the active session only.
    """
    spark.createDataFrame([], "nothing int")
    with suppress(SpecError), session_of_its_own(spark) as session:
        session.createDataFrame([], "nothing int")
        assert SparkSession.getActiveSession() is session
        raise SpecError("The user's function fails", "spec", "Mend it.")
    assert SparkSession.getActiveSession() is spark


def test_what_the_session_is_told_is_known_to_spark(spark: SparkSession) -> None:
    """Spark knows each setting that the session is given.

    Spark ignores settings that it doesn't know, without an error.
    """
    session = spark.newSession()
    for name in checkpoint.SETTINGS:
        session.conf.get(name)  # raises if Spark has no such setting
    with pytest.raises(PySparkException):
        session.conf.get("spark.sql.shuffle.noSuchSetting")


def test_a_column_with_the_name_of_windrow_s_own(make_setup: Any, on_spark: Any) -> None:
    """A column with the name of one of windrow's own is refused before anything is read.

    Spark ignores case, so the error gives both names.
    """
    setup = make_setup("same", decode={"schema": "things.py:Tried"})
    with pytest.raises(SpecError, match=r"doesn't tell columns apart .*: windrow_try, Windrow_Try"):
        run_window(on_spark(setup), setup)


def test_what_it_needs(make_setup: Any, on_spark: Any) -> None:
    """A `spark` step is refused for an engine without DataFrames and a sink without a table.

    Such a sink shows a window in pieces. The replay of dead letters is refused too.
    """
    with pytest.raises(SpecError, match="needs Spark, and LocalEngine has no DataFrames"):
        assemble(make_setup("latest").spec(), LocalEngine())
    setup = make_setup("latest")
    sink_section = {"kind": "kafka", "topic": "elsewhere", "staging": str(setup.folder / "staged")}
    with pytest.raises(SpecError, match="needs a table that shows a window as a whole"):
        assemble(setup.spec().model_copy(update={"sink": _sink(sink_section)}))
    pipeline = on_spark(setup)
    run_window(pipeline, setup)
    with pytest.raises(SpecError, match=r"can't be replayed: .* takes all rows of a window"):
        replay_dead_letters(pipeline, setup.window(1), DeadReplayRequest("test"))


def _sink(sink_section: dict[str, Any]) -> Any:
    """Returns the section of a sink."""
    from windrow.ingest.settings.kinds import section_at
    from windrow.ingest.sinks.kinds import KINDS

    return section_at(KINDS[sink_section["kind"]]).model_validate(sink_section)


RUN = ("run", "--window", "2026-01-05T01:00:00Z")


@pytest.fixture
def user(kafka: str, topic: str, tmp_path: Path) -> User:
    """A user with the same messages, and a function that shuffles all rows."""
    user = User(kafka, topic, tmp_path)
    (tmp_path / "functions.py").write_text((HERE / "functions.py").read_text())
    with (tmp_path / "things.yaml").open("a") as spec:
        spec.write("transform: {steps: [{spark: 'functions.py:same'}]}\n")
    return user


def assert_exactly_once(user: User) -> None:
    """Asserts that the checker finds no fault in the first hour."""
    produced = read_visible(user.setup.bootstrap, user.setup.topic)
    report = verdict(
        user.setup,
        {
            tp: {o: value for o, value in id_by_offset.items() if value != 99}
            for tp, id_by_offset in produced.items()
        },
    )
    assert report.ok, report


@pytest.mark.long
@pytest.mark.parametrize("point", ["write.middle", "transform.middle"])
def test_a_killed_worker_is_run_again(user: User, point: str) -> None:
    """A killed worker's task runs again.

    1. A worker reads, or stages the function's rows, and is killed.
    2. Spark runs its task again.
    3. The window has each row once.
    """
    killed = user.folder / "killed"
    ran = user.starts_and_ends(*RUN, crash=f"{point}:kill:{killed}")
    assert killed.exists(), "no worker came by the crash point"
    assert [w["recovered"] for w in ran["windows"]] == [False]
    assert_exactly_once(user)


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_driver_that_is_killed_while_rows_are_staged(user: User) -> None:
    """A driver that is killed while rows are staged leaves nothing visible.

    1. A worker has staged the function's rows and halts.
    2. The driver is killed.
    3. A rerun reads again, and the window has each row once.
    """
    command = user.starts(*RUN, crash=f"transform.middle:stop:{user.folder / 'halted'}")
    try:
        wait_until_a_worker_halts(psutil.Process(command.pid))
    finally:
        kill_with_all_below(command)
    assert [w["recovered"] for w in user.types(*RUN)["windows"]] == [False]
    assert_exactly_once(user)


@pytest.mark.long
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("point", "recovered"), [("commit.before", False), ("commit.after", True)])
def test_a_driver_that_is_killed_around_its_commit(user: User, point: str, recovered: bool) -> None:
    """A driver that is killed before its commit leaves nothing; after its commit, everything.

    A rerun then commits, or finds, each row once.
    """
    with user.starts(*RUN, crash=f"{point}:kill") as command:
        command.communicate(timeout=240)
    assert command.returncode == -9
    assert [w["recovered"] for w in user.types(*RUN)["windows"]] == [recovered]
    assert_exactly_once(user)
