"""The commands: their output, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from tests.cli.conftest import START, Stage, hour
from tests.command import run_command
from tests.commands import with_spec
from tests.registry.server import RegistryServer
from windrow.ingest import assemble as assembly
from windrow.ingest.cli.main import app
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.boundary import HOW_WORDS, How, TopicPartition
from windrow.ingest.registry.client import client_of
from windrow.ingest.runner.task import SplitTask

SECRET = "secret-payload"

ROOT = Path(__file__).parents[2]
TP0 = TopicPartition("shop.things", 0)


def test_plan_shows_and_freezes_nothing(stage: Stage) -> None:
    """`plan` shows each split's offsets and how they were found, and freezes nothing.

    Asked twice, it answers the same.
    """
    first = stage.json("plan", stage.spec, "--window", hour(1))
    (plan,) = first["plans"]
    assert (plan["window"], plan["end"], plan["frozen"]) == (hour(1), hour(2), [])
    assert [
        (p["partition"], p["start"], p["stop"], p["messages_at_most"], p["splits"])
        for p in plan["partitions"]
    ] == [
        (0, 3, 6, 3, 1),
        (1, 2, 4, 2, 1),
    ]
    assert {p["start_how"] for p in plan["partitions"]} == {"settled"}
    assert stage.json("plan", stage.spec, "--window", hour(1)) == first
    assert not (stage.folder / "lake").exists()


def test_plan_says_what_is_frozen(stage: Stage) -> None:
    """`plan` says what is frozen: a boundary after the previous window's run, or the
    plan itself.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    assert stage.json("plan", stage.spec, "--window", f"{hour(0)}/{hour(2)}")["plans"][1][
        "frozen"
    ] == ["start"]
    stage.json("run", stage.spec, "--window", hour(1))
    assert stage.json("plan", stage.spec, "--window", hour(1))["plans"][0]["frozen"] == [
        "start",
        "end",
        "plan",
    ]


def test_plan_for_people(stage: Stage) -> None:
    """Without --json, `plan` prints a table that says in words how offsets were found.

    There are words for each way.
    """
    assert set(HOW_WORDS) == set(get_args(How))
    result = stage.call("plan", stage.spec, "--window", hour(0))
    assert result.exit_code == 0
    assert "shop.things[1]" in result.stdout
    assert "nothing frozen yet" in result.stdout
    assert "timestamps" in result.stdout
    assert "settled" not in result.stdout


def test_plan_refuses_what_a_run_would_miss_of_the_registry(
    stage: Stage, schema_registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the registry's extra isn't installed, or the registry doesn't answer, `plan` says so.

    Its message is the same as that of `run`.
    """
    stage.write(f"topic: shop.things, registry: {{url: '{schema_registry.url}', retries: 0}}")
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("decode: {", "decode: {format: avro-confluent, "))
    schema_registry.register(
        "shop.things-value", '{"type": "record", "name": "Thing", "fields": []}'
    )
    assert stage.json("plan", stage.spec, "--window", hour(0))["plans"]

    def error_of(command: str, code: int) -> str:
        return str(stage.json(command, stage.spec, "--window", hour(0), code=code)["error"])

    with monkeypatch.context() as without:
        client_of.cache_clear()
        without.setitem(sys.modules, "confluent_kafka.schema_registry", None)
        assert error_of("plan", 2) == error_of("run", 2)
        assert "pip install 'windrow-ingest[registry]'" in error_of("plan", 2)
    schema_registry.stop()
    assert error_of("plan", 3) == error_of("run", 3)


def test_run_commits_once(stage: Stage) -> None:
    """`run` commits a range of windows in order; a second run reports them and writes nothing."""
    windows = f"{hour(0)}/{hour(3)}"
    first = stage.json("run", stage.spec, "--window", windows)["windows"]
    assert [(w["recovered"], w["committed"]["receipt"]["counts"]["valid"]) for w in first] == [
        (False, 4),
        (False, 4),
        (False, 0),
    ]
    second_runs = stage.json("run", stage.spec, "--window", windows)["windows"]
    assert [w["recovered"] for w in second_runs] == [True] * 3
    assert [w["committed"] for w in second_runs] == [w["committed"] for w in first]


def test_dagsters_section_is_read_and_left_alone(stage: Stage) -> None:
    """The commands ignore the section `dagster`, even if its Spark doesn't answer.

    A wrong value in the section is refused.
    """
    spec = Path(stage.spec)
    without, doctor = stage.json("plan", stage.spec, "--window", hour(0)), _doctor(stage)
    section = "{key: bank/things, pool: a, retries: 9, spark: {connect: 'sc://127.0.0.1:1'}}"
    written = spec.read_text()
    spec.write_text(f"{written}dagster: {section}\n")
    assert stage.json("plan", stage.spec, "--window", hour(0)) == without
    assert _doctor(stage) == doctor
    [window] = stage.json("run", stage.spec, "--window", hour(0))["windows"]
    assert not window["recovered"]
    spec.write_text(f"{written}dagster: {{pool: a b}}\n")
    refused = stage.call("plan", stage.spec, "--window", hour(0))
    assert (refused.exit_code, "dagster.pool: must not have spaces" in refused.output) == (2, True)


def _doctor(stage: Stage) -> tuple[int, list[str]]:
    """Returns the exit code of `doctor`, and the names of its checks."""
    result = stage.call("doctor", stage.spec, "--json")
    return result.exit_code, [check["name"] for check in json.loads(result.stdout)["checks"]]


def test_run_for_people(stage: Stage) -> None:
    """Without --json, `run` prints a line for each window, with its offsets.

    The line says if the window was committed already.
    """
    result = stage.call("run", stage.spec, "--window", hour(0))
    assert result.exit_code == 0
    assert "0: 0..3  1: 0..2" in result.stdout
    assert "committed already" in stage.call("run", stage.spec, "--window", hour(0)).stdout


def on_a_terminal(columns: int, *arguments: str) -> str:
    """Returns the output of a command on a terminal with some columns, without colours."""
    terminal, program = pty.openpty()
    termios.tcsetwinsize(program, (25, columns))
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "windrow.ingest.cli.main", *arguments],
        env=env | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
        stdin=program,
        stdout=program,
        stderr=program,
    ) as process:
        os.close(program)
        output = b""
        with suppress(OSError):  # the other end of the terminal is closed
            while piece := os.read(terminal, 65536):
                output += piece
        os.close(terminal)
        assert process.wait(60) == 0, output.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", output.decode())


@pytest.mark.slow
def test_a_narrow_terminal_cuts_no_word(stage: Stage) -> None:
    """On a narrow terminal, each key, name and number in a table is printed whole.

    No line is longer than the terminal. Users copy the keys into the next command.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.json("replay", stage.spec, "--window", hour(0))
    for command in (["show"], ["dead", "show"]):
        wide = stage.call(*with_spec(command, stage.spec)).stdout
        words = set(re.split(r"[\s┏━┳┓┃┡╇┩│└─┴┘]+", wide)) - {""}
        assert hour(1) in words
        for columns in (60, 80, 120):
            narrow = on_a_terminal(columns, *with_spec(command, stage.spec))
            assert {word for word in words if word not in narrow} == set()
            assert max(map(len, narrow.splitlines())) <= columns


def test_a_table_in_a_file_is_a_line_a_row(stage: Stage) -> None:
    """In a file, each row of a table is one line, however wide, and nothing is cut."""
    for text in (b"a" * 99, b"b" * 99):
        timestamp = START + timedelta(hours=1)
        stage.broker.produce(TopicPartition("shop.things", 0), text, key=text, timestamp=timestamp)
    lines = stage.call("peek", stage.spec).stdout.splitlines()
    assert [[line.count(c * 9) for line in lines if c * 9 in line] for c in "ab"] == [[22], [22]]


def test_what_was_done_is_told_beside_the_error(stage: Stage) -> None:
    """If a later window can't be run, the result has the earlier ones, and the error's
    exit code.
    """
    stage.now = START + timedelta(hours=1, minutes=10)
    document = stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}", code=4)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in document["windows"]] == [
        hour(0)
    ]
    assert document["error"]["kind"] == "NotClosedError"
    assert "Run it at 2026-01-05T02:05:00Z or later." in document["error"]["message"]
    result = stage.call("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert hour(0) in result.stdout
    assert "is not closed yet" in result.stderr


def test_a_refused_window_is_passed_over_where_that_is_said(stage: Stage) -> None:
    """With --keep-going, the windows after a refused one are run, and the refused one is named.

    Without it, the windows that were not tried are named.
    """
    stage.produce(4, b"secret-poison", b"secret-poison")
    stage.produce(5, b'{"id": 1}')
    arguments = ("run", stage.spec, "--window", f"{hour(3)}/{hour(6)}")
    stopped = stage.json(*arguments, code=1)
    assert len(stopped["windows"]) == 1
    assert stopped["error"]["message"].endswith(f" Not tried: {hour(5)}.")
    going = stage.json(*arguments, "--keep-going", code=1)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in going["windows"]] == [
        hour(3),
        hour(5),
    ]
    assert going["error"]["message"].startswith(
        f"1 of 3 windows refused: {hour(4)}. The others are committed."
    )
    assert "2 of 2 messages refused: JSON is malformed" in going["error"]["message"]
    stage.write(window="grid: batch")
    assert (
        "blocks all later ones"
        in stage.json("run", stage.spec, "--keep-going", code=2)["error"]["message"]
    )


def _too_many_dead(stage: Stage) -> None:
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("ratio: 0.6", "ratio: 0"))


def _expired(stage: Stage) -> None:
    stage.broker.delete_records(TP0, 4)


def _open(stage: Stage) -> None:
    stage.now = START


def _wrong_spec(stage: Stage) -> None:
    Path(stage.spec).write_text("id: x\n")


def _down(stage: Stage) -> None:
    def down(*_: Any) -> None:
        raise UnreachableError("the cluster does not answer", "plan", "Start it.")

    stage.broker.first_at_or_after = down  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("trouble", "code", "kind"),
    [
        (_too_many_dead, 1, "DeadLetterLimitError"),
        (_expired, 1, "DataLossError"),
        (_wrong_spec, 2, "SpecMistakesError"),
        (_down, 3, "UnreachableError"),
        (_open, 4, "NotClosedError"),
    ],
)
def test_exit_codes(stage: Stage, trouble: Any, code: int, kind: str) -> None:
    """Each kind of error has its exit code, one paragraph on stderr, and no stack trace."""
    trouble(stage)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == code
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"].strip() in result.stderr
    assert "Traceback" not in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("yesterday", "is not an instant"),
        ("2026-01-05T02:00:00Z/2026-01-05T02:00:00Z", "its end isn't later than its start"),
        ("2026-01-05T00:30:00Z", "is not on the hourly grid"),
        ("2026-01-05T02:00:00Z/2026-01-05T01:00:00Z", "has no window in it"),
        ("2026-01-04T23:00:00Z", "lies before the pipeline's start, 2026-01-05T00:00:00Z"),
        (
            "2026-01-05T00:00:00Z/",
            "or for one window its start alone: 2026-01-05T00:00:00Z.",
        ),
        ("/2026-01-05T00:00:00Z", "says only one end of several windows"),
        (
            "2026-01-05T00:00:00Z..2026-01-05T02:00:00Z",
            "several windows as 2026-01-05T00:00:00Z/2026-01-05T02:00:00Z",
        ),
    ],
)
def test_wrong_window_is_usage(stage: Stage, window: str, says: str) -> None:
    """An argument of --window that names no window of the pipeline is a usage error."""
    result = stage.call("run", stage.spec, "--window", window)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["fly"],
        ["replay", "x.yaml"],
        ["run", "x.yaml", "--drain", "--window", "7"],
        ["show", "x.yaml", "--payload"],
        ["doctor", "--rebuild-ledger"],
        ["show", "x", "--limit", "0"],
        ["peek", "x", "--limit", "0"],
        ["peek", "x", "--isolation", "serializable"],
    ],
)
def test_wrong_usage(stage: Stage, arguments: list[str]) -> None:
    """Wrong arguments end with exit code 2."""
    assert stage.call(*arguments).exit_code == 2


def single_options() -> Iterator[tuple[list[str], str]]:
    """Yields every option that takes one value, with the words of its command."""
    waiting: list[tuple[list[str], Any]] = [([], get_command(app))]
    while waiting:
        words, command = waiting.pop()
        waiting += [
            ([*words, name], subcommand)
            for name, subcommand in getattr(command, "commands", {}).items()
        ]
        for option in command.params:
            if option.param_type_name == "option" and not (option.is_flag or option.multiple):
                yield words, option.opts[0]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        pytest.param(*words_and_option, id=" ".join([*words_and_option[0], words_and_option[1]]))
        for words_and_option in single_options()
    ],
)
def test_no_option_is_dropped_for_a_second_one(words: list[str], option: str) -> None:
    """An option that takes one value is refused if it is given twice.

    Otherwise the last one alone would count, with exit code 0.
    """
    result = run_command(*words, option, "1", f"{option}=2", "--help")
    assert result.exit_code == 2
    assert f"{option} may be given once" in result.output


def test_several_windows_are_told_how(stage: Stage) -> None:
    """Two options --window are refused, and the message shows the form for several windows."""
    result = stage.call("run", stage.spec, "--window", hour(0), "--window", hour(1))
    assert result.exit_code == 2
    assert "START/END for several" in " ".join(result.output.replace("│", "").split())
    assert stage.json("show", stage.spec)["windows"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["run", "--conf", "spark.ui.enabled=true", "--conf", "spark.ui.enabled=false"],
            "NAME once",
        ),
        (["run", "--master", "local[x]"], "this machine is local, local[4]"),
        (["replay", "--window", "7", "--master", "local[2"], "this machine is local, local[4]"),
        (["dead"], "a command of windrow dead before it, one of show, replay"),
        ([], "a command of windrow before it"),
    ],
)
def test_usage_says_what_to_write(stage: Stage, arguments: list[str], says: str) -> None:
    """A Spark property given twice, a wrong master, and a spec without a command are explained."""
    result = run_command(*arguments, Path(stage.spec).name)
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", "").split())


def test_debug_shows_the_trace(stage: Stage) -> None:
    """With --debug, the stack trace is on stderr, and stdout is still one document."""
    stage.now = START
    result = stage.call("run", stage.spec, "--window", hour(0), "--debug", "--json")
    assert "Traceback" in result.stderr
    assert result.exit_code == json.loads(result.stdout)["error"]["exit_code"] == 4


def test_a_bug_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug has its own exit code and kind in the document.

    The exception's text may quote a message, so it is shown with --debug only.
    """

    def broken(*_: Any) -> None:
        raise KeyError("secret-payload")

    monkeypatch.setattr(assembly, "assemble_to_look", broken)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == 70
    assert json.loads(result.stdout)["error"] == {"kind": "KeyError", "exit_code": 70}
    assert "KeyError: this is a bug in windrow" in result.stderr
    assert "--debug" in result.stderr
    assert "secret-payload" not in result.output
    assert "secret-payload" in stage.call("run", stage.spec, "--window", hour(0), "--debug").stderr


def test_a_bug_in_a_worker_is_told_like_any_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in a task ends the command with exit code 70 and names its place.

    The exception's text is never shown; --debug shows the stack trace.
    """

    def broken(*_: Any) -> None:
        raise KeyError(SECRET)  # a stack trace shows this line

    monkeypatch.setattr(SplitTask, "__call__", broken)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == 70
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"], error["topic"]) == ("BugError", 70, "shop.things")
    assert "KeyError: this is a bug in windrow" in result.stderr
    assert "--debug" in result.stderr
    assert "in broken" not in result.stderr
    debugged = stage.call("run", stage.spec, "--window", hour(0), "--debug")
    assert "in broken" in debugged.stderr
    assert SECRET not in result.output + debugged.output


def test_help_names_the_exit_codes(stage: Stage) -> None:
    """The help explains each exit code, also that of a bug."""
    assert "70 a bug in windrow" in " ".join(stage.call("--help").stdout.split())


def test_prints_of_libraries_stay_off_stdout(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a library prints something, stdout is still one JSON document."""

    def chatty(*arguments: Any) -> Any:
        print("warming up")
        return stage.assemble_to_look(*arguments)

    monkeypatch.setattr(assembly, "assemble_to_look", chatty)
    assert stage.json("run", stage.spec, "--window", hour(0))["windows"]


def test_replay_replaces(stage: Stage) -> None:
    """A replay reads the frozen offsets again as the next generation, once for each request."""
    stage.json("run", stage.spec, "--window", hour(0))
    first = stage.json("replay", stage.spec, "--window", hour(0), "--request", "r1")["windows"][0]
    assert (first["recovered"], first["committed"]["receipt"]["generation"]) == (False, 1)
    retried = stage.json("replay", stage.spec, "--window", hour(0), "--request", "r1")["windows"][0]
    assert (retried["recovered"], retried["committed"]["receipt"]["generation"]) == (True, 1)
    next_replay = stage.json("replay", stage.spec, "--window", hour(0))["windows"][0]
    assert next_replay["committed"]["receipt"]["generation"] == 2


def test_replay_says_what_was_replaced(stage: Stage) -> None:
    """A replay's output says whether the window was replaced, committed, or there already."""

    def says(*arguments: str) -> str:
        line = next(line for line in stage.call(*arguments).stdout.splitlines() if hour(0) in line)
        return line.strip("│ ").split("│")[1].strip()

    replay = ("replay", stage.spec, "--window", hour(0), "--request")
    assert says(*replay, "r1") == "committed"
    assert says(*replay, "r1") == "committed already"
    assert says(*replay, "r2") == "replaced, generation 1"
    assert says(*replay, "r2") == "committed already, generation 1"
    assert says(*replay, "r3") == "replaced, generation 2"
    assert says("run", stage.spec, "--window", hour(0)) == "committed already, generation 2"


def test_replay_refuses_fewer(stage: Stage) -> None:
    """A replay that finds fewer messages is refused, unless --accept-fewer is given."""
    stage.json("run", stage.spec, "--window", hour(0))
    stage.broker.remove(TP0, [1])
    assert (
        stage.json("replay", stage.spec, "--window", hour(0), code=1)["error"]["kind"]
        == "DataLossError"
    )
    accepted = stage.json("replay", stage.spec, "--window", hour(0), "--accept-fewer")["windows"][0]
    assert accepted["committed"]["receipt"]["counts"]["read"] == 4


def test_show_windows(stage: Stage) -> None:
    """`show` prints committed windows in order: the newest ones, or those that are asked for."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")

    def starts(*arguments: str) -> list[str]:
        shown = stage.json("show", stage.spec, *arguments)["windows"]
        return [w["receipt"]["plan"]["window"]["start"] for w in shown]

    assert starts() == [hour(0), hour(1), hour(2)]
    assert starts("--limit", "2") == [hour(1), hour(2)]
    assert starts("--window", hour(1)) == [hour(1)]
    text = stage.call("show", stage.spec, "--limit", "2").stdout
    assert "1 older ones are not shown" in text
    assert stage.json("show", stage.spec, "--limit", "2")["left_out"] is True
    assert hour(0) not in text


def test_fields_that_no_column_is_for_are_told(stage: Stage) -> None:
    """`run` and `show` name unknown fields, and count the messages that have them."""
    stage.produce(7, b'{"id": 1, "issue": {"id": 7}}', b'{"id": 2}', b'{"id": 3, "a\\u001bb": 1}')
    ran = stage.call("run", stage.spec, "--window", hour(7)).stdout
    shown = stage.call("show", stage.spec, "--window", hour(7)).stdout
    words = (
        "2 messages with fields that no column is for; of the first 1,000 of a split: 'issue' (1),"
        " 'a\\x1bb' (1)"
    )
    for text in (ran, shown):
        assert words in " ".join(text.split())
    (window,) = stage.json("show", stage.spec, "--window", hour(7))["windows"]
    counts = window["receipt"]["counts"]
    assert (counts["read"], counts["dead"], counts["ignored"]) == (3, 0, 2)


def test_show_nothing(stage: Stage) -> None:
    """Before the first run, `show` and `dead show` print nothing, without an error."""
    assert stage.json("show", stage.spec) == {
        "pipeline": "things",
        "windows": [],
        "left_out": False,
        "uncommitted": [],
        "done": False,
    }
    assert stage.json("dead", "show", stage.spec) == {
        "pipeline": "things",
        "dead": [],
        "left_out": False,
        "refused": [],
    }
    assert "Nothing is committed yet." in stage.call("show", stage.spec).stdout
    assert (
        f"Nothing is committed in {hour(1)}."
        in stage.call("show", stage.spec, "--window", hour(1)).stdout
    )
    none = stage.call("dead", "show", stage.spec, "--window", hour(1), "--attempt", "nosuch").stdout
    assert f"There are no dead letters of attempt nosuch in {hour(1)}." in none


def test_show_dead_of_a_refused_replay(stage: Stage) -> None:
    """The command in a refused replay's message shows the dead letters of that attempt.

    Without --attempt, `dead show` shows those of the committed attempt.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    schema = stage.folder / "schema.py"
    schema.write_text(schema.read_text().replace("pl.Int64", "pl.Int64 = pa.Field(ge=100)"))
    error = stage.json("replay", stage.spec, "--window", hour(0), code=1)["error"]["message"]
    named = re.search(r"windrow (dead show \S+ --window \S+ --attempt \w+)", error)
    assert named is not None, error
    assert len(stage.json(*named[1].split())["dead"]) == 5
    assert len(stage.json("dead", "show", stage.spec, "--window", hour(0))["dead"]) == 1


def test_show_dead_of_a_refused_window(stage: Stage) -> None:
    """The message of a refused window says what is wrong, and which command shows the dead letters.

    That command shows the newest attempt's. Without --window, the refused window is named.
    """
    _too_many_dead(stage)
    for _ in range(2):
        error = stage.json("run", stage.spec, "--window", hour(0), code=1)["error"]["message"]
    assert (
        "1 of 5 messages refused: JSON is malformed: Expecting value (1). First: shop.things[0]@2. "
        in error
    )
    assert f"windrow dead show {stage.spec} --window {hour(0)})" in error
    named = stage.json("dead", "show", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert [(d["window"], d["partition"], d["offset"]) for d in named["dead"]] == [(hour(0), 0, 2)]
    ((window, attempt),) = [(r["window"], r["attempt"]) for r in named["refused"]]
    assert window == hour(0)
    text = stage.call("dead", "show", stage.spec, "--window", hour(0)).stdout
    assert f"{hour(0)} is not committed; these are of its newest attempt, {attempt}." in text
    assert (
        stage.json("dead", "show", stage.spec, "--window", hour(0), "--attempt", attempt)["dead"]
        == named["dead"]
    )
    all_dead = stage.json("dead", "show", stage.spec)
    assert (all_dead["dead"], all_dead["refused"]) == ([], named["refused"])
    text = stage.call("dead", "show", stage.spec).stdout
    assert (
        f"{hour(0)} is not committed; see what was refused: windrow dead show {stage.spec} --window"
        f" {hour(0)}" in text
    )
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("ratio: 0}", "ratio: 0.6}"))
    stage.json("run", stage.spec, "--window", hour(0))
    shown = stage.json("dead", "show", stage.spec)
    assert ([d["offset"] for d in shown["dead"]], shown["refused"]) == ([2], [])


def test_show_dead(stage: Stage) -> None:
    """Dead letters are shown with place and reason, and with their payload only if asked for."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    dead = stage.json("dead", "show", stage.spec)["dead"]
    assert [(d["window"], d["topic"], d["partition"], d["offset"], d["stage"]) for d in dead] == [
        (hour(0), "shop.things", 0, 2, "value"),
        (hour(1), "shop.things", 0, 5, "value"),
    ]
    assert all(d["reason"] and "key" not in d and "value" not in d for d in dead)
    assert "secret" not in stage.call("dead", "show", stage.spec).output
    cut = stage.json("dead", "show", stage.spec, "--limit", "1")
    assert (len(cut["dead"]), cut["left_out"]) == (1, True)
    assert stage.json("dead", "show", stage.spec, "--limit", "2")["left_out"] is False
    assert (
        "There are more, which are not shown"
        in stage.call("dead", "show", stage.spec, "--limit", "1").stdout
    )
    (second,) = stage.json("dead", "show", stage.spec, "--payload", "--window", hour(1))["dead"]
    assert second["value"] == "c2VjcmV0LXBvaXNvbg=="
    assert "secret-poison" in stage.call("dead", "show", stage.spec, "--payload").stdout


def test_control_characters_of_a_payload_stay_out_of_the_terminal(stage: Stage) -> None:
    """Escape sequences in a message are shown as text."""
    stage.produce(5, b"\x1b[31mred[bold]", b'{"id": 1}')
    stage.json("run", stage.spec, "--window", hour(5))
    shown = stage.call("dead", "show", stage.spec, "--payload").stdout
    assert "\x1b[31m" not in shown
    assert r"\x1b[31mred[bold]" in shown


def test_verify(stage: Stage) -> None:
    """`verify` ends with 0 for a healthy pipeline, and with 1 for a damaged one."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert stage.json("verify", stage.spec) == {"windows": 2, "rows": 8, "findings": []}
    assert "nothing is wrong" in stage.call("verify", stage.spec).stdout
    (stage.folder / ".windrow" / "state.db").unlink()
    document = stage.json("verify", stage.spec, code=1)
    assert {f["about"] for f in document["findings"]} == {"ledger"}


def test_verify_says_what_it_could_not_check(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the broker doesn't answer, `verify` says that something was not checked."""
    stage.json("run", stage.spec, "--window", hour(0))

    def down(*_: Any) -> None:
        raise UnreachableError("the cluster does not answer", "verify", "Start it.")

    monkeypatch.setattr(stage.broker, "topics", down)
    assert (
        "nothing is wrong; 1 thing could not be checked" in stage.call("verify", stage.spec).stdout
    )


def test_version(stage: Stage) -> None:
    """`--version` prints the version and the distribution's name."""
    assert (
        stage.call("--version").stdout
        == f"windrow {metadata.version('windrow-ingest')}, of the distribution windrow-ingest\n"
    )


MISTYPED = """
import sys
from typer.testing import CliRunner
from windrow.ingest.cli.main import app

for command in ("plan", "run", "replay", "rebase", "peek", "lag", "show", "verify"):
    window = ["--window", "2026-01-05T00:00:00Z"] if command == "replay" else []
    result = CliRunner().invoke(app, [command, "nosuch.yaml", *window])
    assert result.exit_code == 2, command
    assert "nosuch.yaml" in result.stderr, command
    assert "pyarrow" not in sys.modules, command
"""


@pytest.mark.slow
def test_mistyped_spec_loads_nothing() -> None:
    """A spec that doesn't exist is refused with 2, before any large library is loaded."""
    subprocess.run([sys.executable, "-c", MISTYPED], cwd=ROOT, check=True, timeout=120)


def test_lost_ledger_comes_back(stage: Stage) -> None:
    """Without its ledger a run is refused; after a rebuild it reports the committed windows."""
    windows = f"{hour(0)}/{hour(2)}"
    stage.json("run", stage.spec, "--window", windows)
    (stage.folder / ".windrow" / "state.db").unlink()
    assert (
        stage.json("run", stage.spec, "--window", windows, code=1)["error"]["kind"] == "OwnerError"
    )
    assert stage.json("doctor", stage.spec, "--rebuild-ledger")["windows"] == 2
    assert [
        w["recovered"] for w in stage.json("run", stage.spec, "--window", windows)["windows"]
    ] == [True, True]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_env_file(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The .env file of the working directory sets variables that the environment doesn't have."""
    monkeypatch.setenv("THINGS_SINK", "from-environment")
    monkeypatch.setenv("THINGS_ID", "")  # monkeypatch then removes the variable after the test
    monkeypatch.delenv("THINGS_ID")
    (stage.folder / ".env").write_text("THINGS_ID=from-file\nTHINGS_SINK=from-file\n")
    text = (
        Path(stage.spec)
        .read_text()
        .replace("id: things", "id: '{{ env.THINGS_ID }}'")
        .replace("lake/things", "'{{ env.THINGS_SINK }}'")
    )
    Path(stage.spec).write_text(text)
    assert stage.json("run", stage.spec, "--window", hour(0))["pipeline"] == "from-file"
    assert (stage.folder / "from-environment").is_dir()
