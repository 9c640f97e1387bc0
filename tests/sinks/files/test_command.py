"""The command as it is, on pipelines whose table is files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


def on_files(stage: Stage, options: str) -> Stage:
    """The pipeline with a sink of files."""
    spec = Path(stage.spec)
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}", f"sink: {{kind: files, path: lake/things{options}}}"
        )
    )
    return stage


@pytest.mark.parametrize("options", ["", ", format: jsonl", ", format: csv, compression: none"])
def test_a_pipeline_runs_on_it(stage: Stage, options: str) -> None:
    """From its spec: run, replay, show, dead letters, verify with everything read back,
    doctor and sweep.
    """
    files = on_files(stage, options)
    assert (
        files.json("run", files.spec, "--window", hour(0))["windows"][0]["committed"]["receipt"][
            "counts"
        ]["valid"]
        == 4
    )
    assert files.json("run", files.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    files.json("replay", files.spec, "--window", hour(0))
    (shown,) = files.json("show", files.spec)["windows"]
    assert shown["receipt"]["generation"] == 1
    assert [letter["reason"] for letter in files.json("dead", "show", files.spec)["dead"]] == [
        "not_json"
    ]
    assert files.json("verify", files.spec, "--deep")["findings"] == []
    assert files.json("sweep", files.spec)["files"] == []
    assert (
        next(c for c in files.json("doctor", files.spec, code=0)["checks"] if c["name"] == "sink")[
            "level"
        ]
        == "ok"
    )


def test_a_file_that_is_gone_or_changed_is_found(stage: Stage) -> None:
    """verify --deep names the window, says what is wrong, and quotes nothing of what lies there."""
    files = on_files(stage, ", format: jsonl, compression: none")
    files.json("run", files.spec, "--window", hour(0))
    file = next((stage.folder / "lake" / "things" / "data").rglob("*.jsonl"))
    good = file.read_bytes()
    for bad, says in (
        (good.replace(b'"id":', b'"id":7', 1), "not those that were committed"),
        (b"secret", "damaged"),
        (None, "gone"),
    ):
        if bad is None:
            file.unlink()
        else:
            file.write_bytes(bad)
        found, *_ = files.json("verify", files.spec, "--deep", code=1)["findings"]
        assert says in found["what"]
        assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (", format: xml", "must be 'parquet', 'jsonl' or 'csv'"),
        (", format: csv, compression: snappy", "snappy goes with format parquet"),
        (", mode: upsert", "sink.mode: unknown key"),
        (", primary_key: [id]", "sink.primary_key: unknown key"),
    ],
)
def test_mistakes_are_told_with_their_lines(stage: Stage, options: str, says: str) -> None:
    """What the kind doesn't have, and what doesn't go together."""
    files = on_files(stage, options)
    said = files.json("show", files.spec, code=2)["error"]["message"]
    assert "line 6" in said
    assert says in said


@pytest.mark.parametrize(
    "path", ["gs://bucket/t", "s3://user:secret@bucket/t", "s3://bucket/t?key=secret"]
)
def test_places_that_cannot_be(stage: Stage, path: str) -> None:
    """A store without conditional puts, and a URL that holds a secret, which is not repeated."""
    spec = Path(stage.spec)
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}", f"sink: {{kind: files, path: {path!r}}}"
        )
    )
    said = stage.json("show", stage.spec, code=2)["error"]["message"]
    assert "line 6: sink.path" in said
    assert "secret" not in said


def test_another_format_is_another_table(stage: Stage) -> None:
    """A table keeps its format; who comes with another one is told which it has."""
    files = on_files(stage, "")
    files.json("run", files.spec, "--window", hour(0))
    Path(files.spec).write_text(
        Path(files.spec).read_text().replace("lake/things}", "lake/things, format: jsonl}")
    )
    assert (
        "was begun with parquet files"
        in files.json("run", files.spec, "--window", hour(1), code=2)["error"]["message"]
    )
