"""Tables in an object store: the same promises by conditional puts, with lost answers and
failing servers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from tests.heard import hear_waits
from tests.s3.contract import OF_A_STORE
from tests.s3.server import S3Server
from tests.sinks.delta.world import DeltaWorld
from tests.sinks.files.world import FilesWorld
from tests.sinks.of_a_world import OfAWorld
from tests.sinks.world import SinkWorld
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.delta.store import DeltaStore
from windrow.ingest.sinks.kit.files import put_if_absent
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.write_check import try_writing
from windrow.ingest.testing.contracts.windows import run_together, staged_receipt
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

pytestmark = [pytest.mark.slow, pytest.mark.some(14, of="tests")]  # a server is started

SPEC = """\
id: things
source: {bootstrap_servers: "127.0.0.1:1", topic: t}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {schema: "things.py:Thing"}
sink: {path: "s3://no-such-bucket-at-all/things"}
"""
FAULTS = ["lost", "cut", "slow_down", "broken"]


class DeltaInStore(DeltaWorld):
    """Delta tables, each in a new bucket."""

    server = "s3"
    log = "/orders/_delta_log/"
    repeats_lost_puts = True
    """True, because deltalake's client repeats a put without an answer by itself."""

    def new_location(self, folder: Path, server: Any) -> str:
        return f"{server.bucket()}/orders"


class FilesInStore(FilesWorld):
    """Tables of files, each in a new bucket."""

    server = "s3"
    log = "/orders/_windrow/log/"
    repeats_lost_puts = False

    def new_location(self, folder: Path, server: Any) -> str:
        return f"{server.bucket()}/orders"


class _InStore(OfAWorld, OF_A_STORE):
    """The suites that depend on how a commit is put, for table and dead letters."""

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        self.server.fail("lost", "PUT", self.world.log)  # type: ignore[attr-defined]
        return nullcontext()


@pytest.mark.some(2, of="tests")
class TestDelta(_InStore):
    """Delta tables, with deltalake's conditional put."""

    world = DeltaInStore()


@pytest.mark.some(2, of="tests")
class TestParquet(_InStore):
    """Tables of files, with boto3's conditional put."""

    world = FilesInStore()


@pytest.fixture(params=[DeltaInStore, FilesInStore])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A world of each kind, without waits."""
    monkeypatch.setattr(put_if_absent.PutIfAbsent, "waits", (0.0, 0.0, 0.0))
    monkeypatch.setattr(DeltaStore, "waits", (0.0, 0.0, 0.0))
    return request.param()


@pytest.fixture
def fresh(world: Any, s3: S3Server, tmp_path: Path) -> Any:
    """A table that isn't prepared, in a new bucket."""
    return world.sink_at(world.new_location(tmp_path, s3))


@pytest.fixture
def sink(fresh: Any) -> Any:
    """A prepared table in a new bucket."""
    fresh.prepare()
    return fresh


@pytest.mark.some(4)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("mode", FAULTS)
def test_a_commit_goes_through_faults(
    world: Any, s3: S3Server, sink: Any, mode: Any, times: int
) -> None:
    """A put that is done but not answered is found by a look; a put that isn't done is
    repeated.

    The window is there once. A second commit of the same receipt gets AlreadyDone.
    """
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    fault = s3.fail(mode, "PUT", world.log, times)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert fault.hit == (1 if mode == "lost" and not world.repeats_lost_puts else times)
    assert isinstance(world.reopen(sink).commit(receipt, staged), AlreadyDone)
    assert world.report(sink, [0]).ok, str(world.report(sink, [0]))


@pytest.mark.some(1)
def test_a_store_that_never_answers_leaves_the_outcome_unknown(
    world: Any, s3: S3Server, sink: Any
) -> None:
    """A store that never answers leaves the outcome unknown.

    Nothing is deleted, and the same commit succeeds later.
    """
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    fault = s3.fail("slow_down", "PUT", world.log, times=100)
    assert isinstance(sink.commit(receipt, staged), Unknown)
    assert 1 < fault.hit < fault.times  # deltalake also tries again by itself
    s3.faults.clear()
    assert isinstance(sink.commit(receipt, staged), Done)
    assert world.report(sink, [0]).ok


def test_two_racers_one_of_whom_hears_nothing(world: Any, s3: S3Server, sink: Any) -> None:
    """Of two runs of one window, the run whose answer is lost finds out by a look whether it
    was first.
    """
    racers = [world.reopen(sink) for _ in range(2)]
    ready = [
        (racer, *staged_receipt(racer, 0, 0, f"racer {n}", dead=False))
        for n, racer in enumerate(racers)
    ]
    s3.fail("lost", "PUT", world.log)
    outcomes = run_together(
        [
            lambda racer=racer, receipt=receipt, files=files: racer.commit(receipt, files)
            for racer, receipt, files in ready
        ]
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyDone", "Done"]
    assert len({outcome.committed.receipt.attempt for outcome in outcomes}) == 1


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", FAULTS)
def test_a_table_is_begun_through_faults(world: Any, s3: S3Server, fresh: Any, mode: Any) -> None:
    """Preparing a table, and the trial of conditional puts, repeat a put whose answer is lost
    or that wasn't done.
    """
    fault = s3.fail(mode, "PUT", world.log, times=2)
    fresh.prepare()
    assert fault.hit
    s3.faults.clear()
    s3.fail(mode, "PUT", "_windrow/doctor/", times=2)
    try_writing(fresh.uri)
    assert fresh.owner() == OWNER


@pytest.mark.some(1)
def test_a_table_that_can_not_be_begun(world: Any, s3: S3Server, fresh: Any) -> None:
    """A table that can't be begun after some tries raises UnreachableError, and nothing was
    begun.
    """
    fault = s3.fail("slow_down", "PUT", world.log, times=100)
    with pytest.raises(UnreachableError, match="SlowDown"):
        fresh.prepare()
    assert 1 < fault.hit < fault.times  # deltalake also tries again by itself
    s3.faults.clear()
    assert fresh.owner() is None


def test_a_trial_that_can_not_be_taken_away(s3: S3Server, fresh: Any) -> None:
    """Removing the trial's file is tried again.

    A file that stays raises an error, which doesn't hide the trial's result.
    """
    fault = s3.fail("slow_down", "DELETE", "_windrow/doctor/", times=2)
    try_writing(fresh.uri)
    assert fault.hit == 2
    s3.fail("slow_down", "DELETE", "_windrow/doctor/", times=100)
    with pytest.raises(UnreachableError, match="SlowDown"):
        try_writing(fresh.uri)
    s3.fail("unconditional", "PUT", "/orders/", times=100)
    with pytest.raises(SpecError, match="exactly once"):
        try_writing(fresh.uri)


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["unconditional", "no_conditions"])
def test_a_store_without_conditional_puts_is_refused(s3: S3Server, fresh: Any, mode: Any) -> None:
    """A store without conditional puts is refused before anything is committed, also a store
    that ignores the condition.

    Doctor asks the store; a table of files asks again when it is begun.
    """
    s3.fail(mode, "PUT", "/orders/", times=100)
    operations = [lambda: try_writing(fresh.uri)]
    for ask in operations if isinstance(fresh.store, DeltaStore) else [*operations, fresh.prepare]:
        with pytest.raises(SpecError, match="exactly once"):
            ask()


def test_doctor_asks_the_store(world: Any, s3: S3Server, fresh: Any) -> None:
    """Doctor reports a missing bucket as a store that can't be written, and leaves nothing in
    an existing bucket.
    """
    with pytest.raises(UnreachableError, match="NoSuchBucket"):
        try_writing("s3://no-such-bucket-at-all/orders")
    try_writing(fresh.uri)
    bucket = fresh.uri.removeprefix("s3://").partition("/")[0]
    assert s3.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.some(1)
def test_no_secret_is_kept(world: SinkWorld, s3: S3Server, sink: Any) -> None:
    """The signing secret is in no object, receipt or error: neither if nothing can be staged,
    nor if the log can't be read.
    """
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    sink.commit(receipt, staged)
    client, bucket = s3.client(), sink.uri.removeprefix("s3://").partition("/")[0]
    for listed in client.list_objects_v2(Bucket=bucket)["Contents"]:
        body = client.get_object(Bucket=bucket, Key=listed["Key"])["Body"].read()
        assert s3.secret.encode() not in body
    s3.fail("broken", "GET", "/orders/", times=1000)
    nowhere = world.sink_at("s3://no-such-bucket-at-all/orders")
    for ask in (lambda: staged_receipt(nowhere, 1), lambda: sink.commit(receipt, staged)):
        with pytest.raises(UnreachableError) as refused:
            ask()
        assert s3.secret not in str(refused.value)
        assert "secret" not in str(refused.value).lower().replace("aws_secret_access_key", "")


def test_a_store_is_waited_for_aloud(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a store is logged, because boto3, Arrow and deltalake retry silently."""
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.0)
    with hear_waits() as heard:
        assert fresh.owner() is None
        assert heard.get(timeout=30).getMessage() == f"Waiting for the storage of {fresh.uri}"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with hear_waits() as heard, Place(fresh.uri).waiting():
        message = heard.get(timeout=30).getMessage()
    assert message.endswith(", and for credentials: AWS_ACCESS_KEY_ID isn't set")


def test_missing_credentials_are_told_by_the_error_alone(tmp_path: Path) -> None:
    """Missing credentials give the error only, without log lines of the library that looked for
    them.
    """
    shutil.copy(Path(__file__).parents[3] / "integration" / "things.py", tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(SPEC)
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:9"
    words = [Path(sys.executable).parent / "windrow", "show", spec]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 3
    assert "can't be read: no credentials were found." in ended.stderr
    assert "aws_config" not in ended.stderr


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without boto3 the error names the extra to install, before anything is read.

    A Delta table in S3 doesn't need it.
    """
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SpecError, match=r"windrow-ingest\[s3\]"):
        FilesWorld().sink_at("s3://bucket/orders")
    try_writing("s3://bucket/orders")


def test_an_endpoint_with_a_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for an endpoint that doesn't answer omits the endpoint's address, which boto3's
    text has.
    """
    address = "http://user:hunter22@127.0.0.1:9"

    def put_object(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url=address)

    client = SimpleNamespace(put_object=put_object)
    monkeypatch.setattr("windrow.ingest.sinks.kit.files.put_if_absent.s3_client", lambda: client)
    with pytest.raises(OSError, match="EndpointConnectionError") as refused:
        put_if_absent.S3Puts(Place("s3://lake/orders")).put("log/1", b"")
    assert "hunter22" not in str(refused.value)
