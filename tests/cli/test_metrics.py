"""Metrics for Prometheus: runs in separate processes add up, and no window waits for a receiver."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.conftest import Stage, hour
from windrow.ingest.cli import lag
from windrow.ingest.errors import UnreachableError
from windrow.ingest.observers import prometheus

Samples = dict[tuple[str, str], float]


OF_GROUP = {"pipeline", "job", "instance"}
"""Labels of a group at a Pushgateway."""


def samples(text: str, *, pipeline: str = "things") -> Samples:
    """Returns the values of one pipeline by name and its other labels."""
    return {
        (
            s.name,
            "".join(v for k, v in sorted(s.labels.items()) if k not in OF_GROUP),
        ): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.labels.get("pipeline") == pipeline
    }


class Receiver:
    """A Pushgateway on loopback: a PUT replaces a group."""

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.groups[self.path] = body
                self.answer("")

            def do_GET(self) -> None:
                self.answer("\n".join(receiver.groups.values()))

            def answer(self, body: str) -> None:
                self.send_response(receiver.status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    new_receiver = Receiver()
    thread = threading.Thread(target=new_receiver.server.serve_forever, args=(0.01,))
    thread.start()
    yield new_receiver
    new_receiver.server.shutdown()
    thread.join(60)
    new_receiver.server.server_close()


def set_destination(destination: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_METRICS", str(destination))


def assert_two_hours(figures: Samples) -> None:
    """Asserts the metrics of two hours with five messages each, one of them refused at first."""
    assert figures["windrow_windows_total", "committed"] == 2
    assert figures["windrow_windows_total", "reported"] == 1
    assert figures["windrow_windows_total", "refused"] == 1
    assert (figures["windrow_rows_total", ""], figures["windrow_dead_letters_total", ""]) == (8, 2)
    assert figures["windrow_commit_tries_total", ""] == 2
    assert {
        figures["windrow_seconds_total", phase] > 0 for phase in ("plan", "read", "commit")
    } == {True}
    assert figures["windrow_lag_records", "shop.things"] == 2
    assert figures["windrow_lag_seconds", "shop.things"] > 0
    first = {
        name: figures[name, "0shop.things"] for name, label in figures if label == "0shop.things"
    }
    assert first.keys() == {
        "windrow_bytes_in_total",
        "windrow_current_offset",
        "windrow_committed_offset",
        "windrow_end_offset",
        "windrow_partition_lag_records",
    }
    assert first["windrow_current_offset"] == first["windrow_committed_offset"] > 0
    lag_records = first["windrow_end_offset"] - first["windrow_committed_offset"]
    assert first["windrow_partition_lag_records"] == lag_records
    assert first["windrow_bytes_in_total"] > 0
    assert figures["windrow_committed_at_seconds", ""] > 1_700_000_000


def run_two_hours(stage: Stage) -> None:
    """Runs one hour twice, refuses the other one, commits it, and measures the lag."""
    spec = Path(stage.spec)
    stage.json("run", stage.spec, "--window", hour(0))
    stage.json("run", stage.spec, "--window", hour(0))
    generous = spec.read_text()
    spec.write_text(generous.replace("0.6", "0"))
    stage.json("run", stage.spec, "--window", hour(1), code=1)
    spec.write_text(generous)
    stage.json("run", stage.spec, "--window", hour(1))
    stage.json("lag", stage.spec)


def test_figures_add_up_over_runs(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pushgateway has a group for each pipeline with the totals of all runs.

    Its labels are the pipeline, a topic, and words of windrow. They have nothing of a message.
    """
    set_destination(receiver.url, monkeypatch)
    run_two_hours(stage)
    (group,) = receiver.groups
    assert group == "/metrics/job/windrow/pipeline/things"
    assert_two_hours(samples(receiver.groups[group]))
    assert "secret" not in receiver.groups[group]


@pytest.mark.parametrize("content", [b'{"not": metrics\x00}', b"\xff\xfe"])
def test_a_file_for_the_textfile_collector(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """A folder has a file for each pipeline, in the format of node_exporter, to which a run adds.

    A file with another content is replaced.
    """
    folder = tmp_path / "textfiles"
    folder.mkdir()
    (folder / "windrow-things.prom").write_bytes(content)
    set_destination(folder, monkeypatch)
    run_two_hours(stage)
    (file,) = folder.iterdir()
    assert_two_hours(samples(file.read_text()))


def test_two_reports_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report of a process adds what was counted since the report before.

    Gauges are replaced. What a failed report had is part of the next one. Series of other
    pipelines are removed.
    """
    other_series, file = 'windrow_rows_total{pipeline="b"} 9.0\n', tmp_path / "windrow-things.prom"
    file.write_text("# TYPE windrow_rows counter\n" + other_series)
    monkeypatch.setattr(prometheus, "REST", 0.0)
    observer = prometheus.Prometheus("things", str(tmp_path))
    for rows, age in ((3, 7.0), (4, 5.0)):
        observer.see("windrow_rows_total", rows)
        observer.see("windrow_rows_total", 0.5)
        observer.see("windrow_lag_seconds", age, "t")
        observer.report()
    assert samples(file.read_text()) == {
        ("windrow_rows_total", ""): 8.0,
        ("windrow_lag_seconds", "t"): 5.0,
    }
    observer.report()
    assert samples(file.read_text())["windrow_rows_total", ""] == 8.0
    observer.see("windrow_rows_total", 2)
    file.unlink()
    tmp_path.rename(tmp_path.with_name("away"))
    with pytest.raises(UnreachableError):
        observer.report()
    tmp_path.with_name("away").rename(tmp_path)
    observer.report()
    assert samples(file.read_text()) == {("windrow_rows_total", ""): 2.0}


def test_a_topic_that_is_gone_has_no_series(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was deleted has no lag any more, so its series is removed."""
    stage.write(source="topic_pattern: 'shop[.].*', on_removed: drop")
    stage.broker.create_topic("shop.other", partitions=1, retention_ms=None)
    stage.json("run", stage.spec, "--window", hour(0))
    set_destination(tmp_path, monkeypatch)
    lags = [{"shop.things", "shop.other"}, {"shop.things"}, {""}]
    for topics, deleted_topic in zip(lags, ("shop.other", "shop.things", ""), strict=True):
        stage.json("lag", stage.spec)
        figures = samples((tmp_path / "windrow-things.prom").read_text())
        for figure in ("windrow_lag_records", "windrow_lag_seconds"):
            assert {topic for name, topic in figures if name == figure} == topics
        if deleted_topic:
            stage.broker.delete_topic(deleted_topic)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "broken", ["no folder", "nobody there", "server error", "no extra", "a bug"]
)
def test_no_window_fails_by_it(
    stage: Stage,
    receiver: Receiver,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If metrics can't be written, the window is committed, with one warning that has
    no password.
    """
    receiver.status = 500 if broken == "server error" else 200
    destinations = {"no folder": "/not/there", "nobody there": "http://me:sesame@127.0.0.1:1"}
    set_destination(destinations.get(broken, receiver.url), monkeypatch)
    if broken == "no extra":
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
    if broken == "a bug":
        monkeypatch.setattr(prometheus, "FIGURES", None)
    with caplog.at_level(logging.WARNING, "windrow.observer"):
        assert stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")["windows"]
    gc.collect()  # a connection that was left open is a warning, which fails the test
    (warning,) = (r.getMessage() for r in caplog.records if r.name == "windrow.observer")
    assert "sesame" not in warning
    assert ("WINDROW_METRICS" in warning) == (broken not in {"no extra", "a bug"})
    assert ("pip install 'windrow-ingest[prometheus]'" in warning) == (broken == "no extra")


def test_lag_can_be_watched(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--watch` prints the lag repeatedly until Ctrl-C, and continues after an error."""
    looks = list[float]()

    class Stop:
        def wait(self, seconds: float) -> bool:
            looks.append(seconds)
            return len(looks) == 3

    def sometimes(*arguments: Any, **more: Any) -> None:
        if len(looks) == 1:
            raise UnreachableError("The broker is away", "read", "Wait.")
        shown(*arguments, **more)

    shown = lag.show_lag
    monkeypatch.setattr(lag, "stop_event", Stop)
    monkeypatch.setattr(lag, "show_lag", sometimes)
    done = stage.call("lag", stage.spec, "--watch")
    assert (done.exit_code, looks) == (0, [lag.EVERY] * 3)
    assert done.output.count("Nothing is committed yet.") == 2
    assert "The broker is away" in done.output
    assert stage.call("lag", stage.spec, "--watch", "--json").exit_code == 2
