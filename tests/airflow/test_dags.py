"""DAGs in Airflow's own task runner, with `DAG.test` in one process and a stub of `windrow`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.world import (
    NINE,
    PLACE,
    SECRET,
    TEN,
    calls,
    commit_reply,
    environment,
    failure_reply,
    install,
    pipeline,
    write_page,
)
from tests.integration.traces import traces

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TAGS = ["shop", "team", "windrow"]
CONF = json.dumps({"window": NINE})
RUNS = [
    f"orders={CONF}",
    f"refused={CONF}",
    f"wrong={CONF}",
    f"away={CONF}",
    f"early={CONF}",
    f"killed={CONF}",
    "replaced=" + json.dumps({"window": NINE, "on_committed": "replace"}),
    "impatient",
    "range",
    f"mixed={CONF}",
    "batches",
    "batches",
    "batches=" + json.dumps({"window": "batch-000000007"}),
    "waits_complete",
    "waits_lost",
    "nowhere",
    "real",
    "interval",
    "aimless",
    f"shop_eu={CONF}",
    "nightly",
]


class Ran:
    """The results of the DAGs, and the calls of the stub."""

    def __init__(self, home: Path) -> None:
        install()
        self.home = home
        windrow = str(Path(sys.executable).parent / "windrow")
        env = environment(home, GRID="*/15 * * * *", WINDROW=windrow)
        self.spec = {name: pipeline(home, name, *answers) for name, answers in ANSWERS.items()}
        self.spec["batches"] = pipeline(
            home,
            "batches",
            commit_reply(7, 8),
            {"document": {"pipeline": "shop", "windows": []}},
            window="{grid: batch, every: '*/5 * * * *'}",
        )
        self.spec["quarters"] = pipeline(
            home,
            "quarters",
            window="""{grid: '{{ env.GRID }}', start: "{{ env('NONE', '2026-01-05T00:15Z') }}",
            delay: 30m}""",
        )
        self.each = pipeline(home, "each", commit_reply(NINE))
        self.each.write_text(EACH)
        for name, files in BROKEN.items():
            for file, content in files.items():
                (home / "broken" / name / file).mkdir(parents=True)
                (home / "broken" / name / file / "defs.yaml").write_text(content)
        write_page(home / "page", pipeline(home / "of-page", "payments").parents[1])
        shutil.copy(HERE / "dag_file.py", home / "dags")
        words = [
            PLACE / "bin" / "python",
            HERE / "driver.py",
            home / "dags" / "dag_file.py",
            home / "page",
            home / "broken",
            *RUNS,
        ]
        with (home / "out").open("w") as out, (home / "err").open("w") as err:
            done = subprocess.run(
                words, cwd=home, env=env, stdout=out, stderr=err, check=False, timeout=500
            )
        self.log = (home / "out").read_text()
        assert done.returncode == 0, self.log[-3000:] + (home / "err").read_text()[-3000:]
        self.report: dict[str, Any] = json.loads(self.log.splitlines()[-1])
        self.runs: list[dict[str, Any]] = self.report["runs"]

    def run_of(self, name: str) -> dict[str, Any]:
        """Returns the first run of a DAG."""
        return next(run for run in self.runs if run["dag"] == name)


ANSWERS: dict[str, list[Any]] = {
    "orders": [
        {**commit_reply(NINE), "says": ["Reading window", "bootstrap {KAFKA_BOOTSTRAP_SERVERS}"]}
    ],
    "refused": [failure_reply(1)],
    "wrong": [failure_reply(2)],
    "away": [failure_reply(3), failure_reply(3), commit_reply(NINE)],
    "killed": [{**failure_reply(130), "killed": True}, failure_reply(130), commit_reply(NINE)],
    "early": [failure_reply(4, until="2026-01-05T10:05:00Z"), commit_reply(NINE)],
    "replaced": [commit_reply(NINE)],
    "mixed": [
        {
            **failure_reply(1),
            "document": commit_reply(NINE, TEN)["document"] | failure_reply(1)["document"],
        }
    ],
    "open": [failure_reply(4)],
    "hours": [commit_reply(NINE, TEN)],
    "maintained": [{"document": {"maintained": {"joined_files": 2, "removed_files": ["x"]}}}],
    "complete": [failure_reply(4), failure_reply(3), {"document": {}}],
    "lost": [failure_reply(4), failure_reply(1, message=f"It is {SECRET}.")],
}


EACH = """\
for_each:
  topic_pattern: 'shop[.](.*)'
  topics: {shop.eu: {window: {delay: null}}, shop.us: {id: us, window: {grid: "{{ env.GRID }}"}}}
id: shop_{name}
source: {}
window: {grid: hourly, start: 2026-01-05T00:00:00Z, delay: 2h}
"""

GOOD = "id: x\nsource: {topic: shop}\nsink: {path: x}\nwindow: "
BROKEN = {
    "nothing": {"a": "type: other.Component\nattributes: {window: {grid: hourly}}"},
    "no-yaml": {"a": "id: [x"},
    "no-grid": {"a": GOOD + "{start: 2026-01-05T00:00:00Z}"},
    "no-zone": {"a": GOOD + "{grid: daily, start: '2026-01-05T00:00:00'}"},
    "no-window": {"a": "id: x\nwindow: 7"},
    "no-id": {"a": "id: a b\nwindow: {grid: batch}"},
    "no-cron": {"a": GOOD + "{grid: '61 * * * *', start: 2026-01-05T00:00:00Z}"},
    "no-variable": {"a": GOOD.replace("x", "'pay_{{ env.NOT_SET }}'", 1) + "{grid: batch}"},
    "one-file": {"a": GOOD + "{grid: batch}\n---\n" + GOOD + "{grid: batch}"},
    "beside": {
        "good": "type: shop.components.BankTable\nattributes: {id: yes, source: {topic: "
        + "t" * 120
        + "}, window: {grid: hourly, start: 2026-01-05T00:00:00Z}}",
        "bad": GOOD.replace("x", "bad", 1) + "{grid: [",
        "tables/t/_window=7": GOOD + "{",
        "other": "type: other.Component\nattributes: {window: {grid: hourly}}",
    },
    "each": {"a": EACH.replace("{{ env.GRID }}", "61 * * * *")},
    "each-other": {"a": EACH.replace("shop.us", "us")},
    "twice": {"a": GOOD + "{grid: batch}", "b": GOOD + "{grid: batch}"},
}
"""Folders without valid pipelines, with the content of each file."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("airflow"))


def test_a_window_is_committed(ran: Ran) -> None:
    """A run's window is committed by one process, and a summary of its receipt is returned.

    The event of the table's asset has the summary, under the window's partition key.
    """
    run = ran.run_of("orders")
    assert (run["run"], run["tries"]) == ("success", 1)
    summary = {
        "pipeline": "shop",
        "windows": 1,
        "recovered": 0,
        "messages": 11,
        "rows": 10,
        "dead_letters": 1,
        "skipped": 0,
        "late": 0,
        "partial": 0,
        "generation": 0,
        "table_version": 3,
        "digest": "d",
    }
    assert run["returned"] == summary
    receipts = f"windrow show {ran.spec['orders']}"
    assert run["events"] == [[NINE, summary | {"receipts": receipts}]]
    call = calls(ran.spec["orders"])[0]
    assert run["others"] == {"events": "skipped", "done": "success"}
    verb, spec, *words = call["words"]
    assert (verb, spec, words[:2]) == ("run", str(ran.spec["orders"]), ["--window", NINE])
    assert words[3].startswith("orders manual__")
    assert words[3].endswith(" run -1")


def test_a_connection_is_in_the_environment(ran: Ran) -> None:
    """The process has a Kafka connection's properties as environment variables, not as
    arguments.
    """
    call = calls(ran.spec["orders"])[0]
    assert call["kafka"]["KAFKA_SASL_PASSWORD"] == SECRET
    assert SECRET not in str(call["words"])
    assert "bootstrap 127.0.0.1:9092" in ran.log, "windrow's log is the task's"
    assert SECRET not in ran.log, "also what the triggerer was answered"
    assert "exit code 1: It is ***." in ran.log


def test_a_connection_is_in_no_file_of_airflow(ran: Ran) -> None:
    """A connection's password is in none of Airflow's files but what `windrow` itself got.

    Its database has rendered fields, XCom, DAGs and tasks, and a search for a DAG sees them.
    """
    files = [file for file in ran.home.rglob("*") if file.is_file() and file.suffix != ".jsonl"]
    contents = {str(file): file.read_bytes() for file in files if file.name != "answers.json"}
    assert traces(contents, [SECRET]) == []
    assert str(ran.home / "airflow.db") in {name for name, *_ in traces(contents, ["orders"])}


@pytest.mark.parametrize(
    ("name", "state", "tries"),
    [
        ("refused", "failed", 1),
        ("wrong", "failed", 1),
        ("away", "success", 3),
        ("early", "success", 1),
        ("impatient", "failed", 2),
        ("waits_complete", "success", 1),
        ("waits_lost", "failed", 1),
        ("nowhere", "failed", 1),
        ("real", "failed", 1),
        ("aimless", "failed", 1),
    ],
)
def test_exit_codes(ran: Ran, name: str, state: str, tries: int) -> None:
    """A refusal fails without a retry, and a temporary error is retried.

    If the window isn't closed, the task waits in the triggerer, or the try counts as failed. A
    sensor asks until the answer is yes or a failure.
    """
    run = ran.run_of(name)
    assert (run["run"], run["task"], run["tries"]) == (state, state, tries)


def test_retries_are_one_request(ran: Ran) -> None:
    """A retry, and a run that was too early, have the same request."""
    for name, times in (("away", 3), ("early", 2)):
        words_of_calls = [call["words"] for call in calls(ran.spec[name])]
        assert len(words_of_calls) == times
        assert len({tuple(words) for words in words_of_calls}) == 1


def test_a_task_that_is_killed_interrupts_its_process(ran: Ran) -> None:
    """A SIGTERM of Airflow to a task interrupts its process, and the task waits for it.

    The next try starts a new process.
    """
    run, verbs = ran.run_of("killed"), [call["words"][0] for call in calls(ran.spec["killed"])]
    assert verbs == ["run", "interrupted", "run"]
    assert (run["run"], run["tries"]) == ("success", 2)


def test_why_it_failed_is_the_exceptions_text(ran: Ran) -> None:
    """The exception's text is windrow's message, or says what Airflow lacks."""
    assert "AirflowFailException: windrow ended with exit code 1: It is 1. Do this." in ran.log
    assert "/no/windrow can't be started on this worker: No such file or directory" in ran.log
    assert "windrow ended with exit code 2: 3 mistakes in" in ran.log, (
        "the real command's own words"
    )
    message = ran.report["unstartable"]["document"]["error"]["message"]
    assert message.startswith("/no/windrow can't be started on this worker"), (
        "the triggerer's words"
    )
    assert "This run names no window: it has no partition key" in ran.log


def test_several_windows_in_one_task(ran: Ran) -> None:
    """A range of windows, or a drain of micro-batches, has an event for each window.

    Without new windows there is no event.
    """
    assert [key for key, _ in ran.run_of("range")["events"]] == [NINE, TEN]
    assert calls(ran.spec["hours"])[0]["words"][2:5] == [
        "--window",
        f"{NINE}/{TEN}",
        "--keep-going",
    ]
    first, second, named = (run for run in ran.runs if run["dag"] == "batches")
    words = calls(ran.spec["batches"])[2]["words"]
    assert (words[2:4], "--keep-going" in words) == (["--window", "batch-000000007"], False)
    assert named["task"] == "skipped"
    assert [key for key, _ in first["events"]] == ["batch-000000007", "batch-000000008"]
    assert calls(ran.spec["batches"])[0]["words"][2] == "--drain"
    assert (second["run"], second["task"], second["events"]) == ("success", "skipped", [])


def test_windows_beside_a_refused_one_have_their_events(ran: Ran) -> None:
    """If a task fails for one window, the other windows have their events, from the task after it.

    The run fails.
    """
    run = ran.run_of("mixed")
    assert (run["run"], run["task"], run["tries"]) == ("failed", "failed", 1)
    assert run["others"] == {"events": "success", "done": "upstream_failed"}
    assert [(key, extra["rows"]) for key, extra in run["events"]] == [(NINE, 20), (TEN, 20)]
    assert ran.run_of("refused")["others"] == {"events": "skipped", "done": "upstream_failed"}


def test_a_tick_runs_what_is_due(ran: Ran) -> None:
    """A scheduled run asks for all due windows.

    A manual, backfilled or cleared run asks for its own key only. A cleared run has another
    request, so that it can replace the window again.
    """
    words_by_run = ran.report["ticks"]
    assert {name: "--due" in words for name, words in words_by_run.items()} == {
        "scheduled 0": True,
        "scheduled 1": False,
        "manual 0": False,
        "backfill 0": False,
    }
    assert words_by_run["scheduled 0"][-1] == "d r run -1"
    assert words_by_run["scheduled 1"][-1] == "d r run -1 1"


def test_a_replacement_is_asked_for_by_a_param(ran: Ran) -> None:
    """`on_committed: replace` of a manual run or a backfill is a replay."""
    assert [call["words"][0] for call in calls(ran.spec["replaced"])] == ["replay"]


def test_a_table_is_maintained(ran: Ran) -> None:
    """The operator calls the command once for the pipeline's file."""
    words = [call["words"] for call in calls(ran.spec["maintained"])]
    assert words == [["maintain", str(ran.spec["maintained"]), "--json"]]
    assert ran.run_of("nightly")["task"] == "success"


def test_an_interval_names_the_windows(ran: Ran) -> None:
    """Without a partition key, the data interval gives the windows, not the logical date."""
    words = calls(ran.spec["orders"])[1]["words"]
    assert words[3] == "2026-01-05T07:00:00+00:00/2026-01-05T08:00:00+00:00"


def test_the_pages_dags(ran: Ran) -> None:
    """Each DAG file on the page can be loaded."""
    assert ran.report["page"] == [
        "daily_sales",
        "hourly_sales",
        "payments",
        "payments_catch_up",
        "payments_maintenance",
    ]


def test_one_dag_a_pipeline(ran: Ran) -> None:
    """Each pipeline file becomes a DAG on its grid, whose first run is after the first window.

    Only the files are read: neither windrow nor a Kafka client is imported.
    """
    dags = ran.report["dags"]
    assert {name: dags[name][0] for name in ran.spec} == {
        **dict.fromkeys(ANSWERS, "0 * * * *"),
        "quarters": "*/15 * * * *",
        "batches": "*/5 * * * *",
    }
    params = ["mine", "on_committed", "window"]
    assert dags["orders"][1:] == ["2026-01-05 00:00:01+00:00", TAGS, False, -1, params]
    assert dags["quarters"][1:] == ["2026-01-05 00:45:01+00:00", TAGS, False, -3, params]
    assert dags["batches"][2:] == [TAGS, False, None, ["mine"]]
    assert not {"windrow", "confluent_kafka", "pyspark", "dagster"} & {*ran.report["modules"]}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "is a pipeline of windrow's"),
        ("no-yaml", "a/defs.yaml: no DAG can be made of it: ParserError: while parsing"),
        ("no-grid", "no DAG can be made of it: KeyError: 'grid'"),
        ("no-zone", "window.start: 2026-01-05T00:00:00 has no time zone"),
        ("no-window", "a/defs.yaml: no DAG can be made of it"),
        ("no-id", "a/defs.yaml: no DAG can be made of it"),
        ("no-cron", "a/defs.yaml: no DAG can be made of it: window.grid: '61 * * * *' is no cron"),
        ("no-variable", "a/defs.yaml: no DAG can be made of it: a variable of 'pay_{{ env.NOT_"),
        ("one-file", "a/defs.yaml: no DAG can be made of it: it has 2 documents"),
        ("each-other", "a/defs.yaml: no DAG can be made of it: topic us doesn't match for_each.to"),
        ("twice", "b/defs.yaml: the pipeline x is in another file, too"),
    ],
)
def test_mistakes_name_their_file(ran: Ran, name: str, says: str) -> None:
    """A pipeline without a valid DAG is an import error with its file and the reason."""
    assert says in ran.report["mistakes"][name]


def test_a_mistake_takes_no_other_pipeline_along(ran: Ran) -> None:
    """A file with a mistake is an import error of its own, and other pipelines have their DAGs.

    A subclass of windrow's component has a DAG, however long its topic is. Folders of tables
    aren't searched.
    """
    good, errors = ran.report["alone"]["beside"]
    assert good == ["yes"]
    [(file, message)] = errors.items()
    assert file.endswith("beside/bad/defs.yaml")
    assert f"{file}: no DAG can be made of it: ParserError: while parsing" in message


def test_one_dag_for_each_topic_of_a_file(ran: Ran) -> None:
    """Each topic has a DAG by its own settings, which runs `FILE:ID`; a wrong one is alone."""
    assert ran.report["dags"]["shop_eu"][:3] == [
        "0 * * * *",
        "2026-01-05 00:00:01+00:00",
        ["shop.eu", "team", "windrow"],
    ]
    assert ran.report["dags"]["us"][:2] == ["*/15 * * * *", "2026-01-05 02:00:01+00:00"]
    assert ran.run_of("shop_eu")["run"] == "success"
    [call] = calls(ran.each)
    assert call["words"][:2] == ["run", f"{ran.each}:shop_eu"]
    good, errors = ran.report["alone"]["each"]
    assert good == ["shop_eu"]
    [(place, message)] = errors.items()
    assert place.endswith("each/a/defs.yaml:us")
    assert "61 * * * *" in message
