"""Forms that programs read: a change in `told/` needs a line in CHANGELOG.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec

from tests.cli.conftest import Stage, hour
from tests.cli.conftest import stage as stage  # noqa: PLC0414  the fixture
from tests.golden import samples
from tests.golden.conftest import Golden
from tests.golden.described import document
from tests.shape.sources import modules
from windrow.assets.failures import failure_of
from windrow.ingest import errors
from windrow.ingest.admin.rebuild import Rebuilt
from windrow.ingest.admin.receipts import Restored
from windrow.ingest.admin.verify import Verified
from windrow.ingest.cli import output
from windrow.ingest.cli.dead import DeadReplayResults, ExportedDead, ShownDead
from windrow.ingest.cli.doctor import Examined
from windrow.ingest.cli.lag import Behind
from windrow.ingest.cli.maintain import ShownMaintenance
from windrow.ingest.cli.pause import PauseState
from windrow.ingest.cli.peek import Peeked, PeekedFile, Shaped
from windrow.ingest.cli.plan import PlanDocument
from windrow.ingest.cli.prepare import Prepared
from windrow.ingest.cli.rebase import Rebased, Rebound
from windrow.ingest.cli.run import Runs
from windrow.ingest.cli.servers import Connected, Serving
from windrow.ingest.cli.windows import Due, ShownStates, ShownWindows
from windrow.ingest.infer.model_update import ModelUpdate
from windrow.ingest.infer.new_pipeline import Begun, Inferred
from windrow.ingest.infer.schema_drift import DriftReport
from windrow.ingest.kafka.dead_topic import headers_of
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Committed
from windrow.ingest.observers.prometheus import Prometheus
from windrow.ingest.ports.observer import FIGURES
from windrow.ingest.runner.context import Result
from windrow.ingest.runner.outcome import ErrorData
from windrow_airflow import process

DOCUMENTS: dict[str, type] = {
    "broker run": Serving,
    "dead replay": DeadReplayResults,
    "dead show": ShownDead,
    "dead show --out": ExportedDead,
    "doctor": Examined,
    "doctor --rebuild-ledger": Rebuilt,
    "due": Due,
    "infer": Inferred,
    "infer --check": DriftReport,
    "infer --template": Begun,
    "infer --update": ModelUpdate,
    "lag": Behind,
    "pause": PauseState,
    "peek": Peeked,
    "peek --out": PeekedFile,
    "peek --rows": Shaped,
    "plan": PlanDocument,
    "prepare": Prepared,
    "rebase": Rebased,
    "rebind": Rebound,
    "replay": Runs,
    "resume": PauseState,
    "run": Runs,
    "show": ShownWindows,
    "spark run": Connected,
    "state": ShownStates,
    "maintain": ShownMaintenance,
    "try": Shaped,
    "verify": Verified,
    "verify --restore-receipts": Restored,
}
"""The document of each command that has its own; that of `help` has the keys `page` and `text`."""


def test_documents(golden: Golden) -> None:
    """The document of each command with `--json` keeps its keys and types, also nested ones."""
    for command, kind in DOCUMENTS.items():
        name = command.replace(" --", ".").replace(" ", "-")
        golden(f"told/{name}.json", document(kind))


def test_commands_print_their_documents(stage: Stage) -> None:
    """Each command prints exactly the keys of its document."""
    hours, spec = f"{hour(0)}/{hour(2)}", stage.spec
    lines, rows = stage.folder / "lines", stage.folder / "rows.jsonl"
    lines.write_text('{"id": 1}\nno row\n')
    for command, *more in (
        ("plan", "--window", hours),
        ("run", "--window", hours),
        ("replay", "--window", hour(0)),
        ("pause", "--why", "an upgrade", "--who", "ann"),
        ("resume",),
        ("peek",),
        ("peek --rows",),
        ("peek --out", str(rows)),
        ("try", str(lines)),
        ("lag",),
        ("show",),
        ("state", "--window", hours),
        ("due",),
        ("verify",),
        ("verify --restore-receipts",),
        ("maintain",),
        ("dead show",),
        ("dead show --out", str(rows)),
        ("dead replay", "--stage", "value", "--dry-run"),
        ("doctor --rebuild-ledger",),
    ):
        *words, option = command.split(" --")
        words = (words or [option])[0].split()
        option = [f"--{option}"] if " --" in command else []
        printed = stage.call(*words, spec, *option, *more, "--json").stdout
        assert printed, command
        read = msgspec.json.decode(printed, type=DOCUMENTS[command])
        assert json.loads(msgspec.json.encode(read)) == json.loads(printed), command
    assert stage.json("help", "retention").keys() == {"page", "text"}


def kinds_of_errors() -> list[type[errors.WindrowError]]:
    kinds = [errors.WindrowError]
    for kind in kinds:
        kinds += [
            subclass for subclass in kind.__subclasses__() if subclass.__module__ == errors.__name__
        ]
    return kinds


def test_errors(golden: Golden) -> None:
    """Errors keep their names, base classes, exit codes and runbooks, and stages keep their names.

    Airflow's operators know the same exit codes.
    """
    tree = {
        kind.__name__: {
            "is a": kind.__base__.__name__ if kind.__base__ else None,
            "exit code": kind.exit_code,
            "runbook": kind.runbook,
            "of the setting": getattr(kind, "of_setting", None),
        }
        for kind in kinds_of_errors()
    }
    golden("told/errors.json", {"stages": get_args(errors.Stage), "errors": tree})
    exit_codes = [process.REFUSED, process.WRONG_SPEC, process.UNREACHABLE, process.TOO_EARLY]
    branches = [
        errors.RefusedError,
        errors.SpecError,
        errors.UnreachableError,
        errors.NotClosedError,
    ]
    assert [*exit_codes, process.BUG] == [*(kind.exit_code for kind in branches), output.BUG]


def test_an_error_as_data(golden: Golden) -> None:
    """An error keeps its form in a document of `--json`, from a task, and in Dagster's metadata."""
    error = errors.DataLossError("gone", "read", "Look.", "shop.orders", 3, 42)
    error.add_note("Stack trace: ...")
    shown = failure_of("Window 2026-01-02T00:00:00Z", error)
    golden(
        "told/error.json",
        {
            "document": document(output.Problem),
            "interrupted": output.INTERRUPTED,
            "task": json.loads(to_json(ErrorData.of(error))),
            "dagster": {name: value.value for name, value in shown.metadata.items()},
        },
    )


REASONS = """
duplicate_key field_count incompatible_schema invalid_utf8 missing no_schema_id not_avro not_csv
not_json not_protobuf other_record other_table out_of_range row_count tombstone too_deep too_large
unavailable undecodable unknown_change unknown_field unknown_schema wrong_format wrong_type
"""


def test_reasons_of_dead_letters(golden: Golden) -> None:
    """The reasons of dead letters, by which they are counted, chosen and shown, keep
    their names.
    """
    texts = "".join(path.read_text(encoding="utf-8") for path in modules("ingest"))
    golden("told/reasons.json", [reason for reason in REASONS.split() if f'"{reason}"' in texts])


def test_metrics(tmp_path: Path, golden: Golden) -> None:
    """Metrics keep their names, labels, types and meanings, and their file its name."""
    observer = Prometheus("orders", str(tmp_path))
    for number, (figure, (_, labels)) in enumerate(FIGURES.items()):
        observer.see(figure, number, *(f"a {label}" for label in labels))
    observer.report()
    (file,) = tmp_path.iterdir()
    golden(f"told/{file.name}", file.read_text())


def test_headers_of_dead_letters(golden: Golden) -> None:
    """The headers of a message in a dead-letter topic keep their names, for each stage."""
    letter = {
        "headers": [{"key": "own", "value": b"1"}],
        "_topic": "shop.orders",
        "_partition": 0,
        "_offset": 13,
        "_timestamp": samples.START,
        "pipeline": "orders",
        "reason": "truncated",
        "detail": "at $.amount",
        "schema_id": "7",
        "attempt": "attempt-2",
        "generation": 1,
        "timestamp_type": "CreateTime",
    }
    headers_by_stage = {
        stage_name: [
            [name, str(text)] for name, text in headers_of({**letter, "stage": stage_name}, "W")
        ]
        for stage_name in ("key", "header", "value", "schema", "rules")
    }
    golden("told/dead_letter_headers.json", headers_by_stage)


def test_what_airflow_reads(golden: Golden) -> None:
    """A run's document has the keys that Airflow's operators read, and their summary
    keeps its keys.
    """
    run = Result(Committed(samples.RECEIPT, 3), recovered=False)
    read = msgspec.to_builtins(Runs("orders", [run]))
    golden("told/airflow.json", [process.summary(read), process.keys(read)])
