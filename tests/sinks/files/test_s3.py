"""The files sink in an object store: the same promises by conditional puts, through
answers that are lost and servers that fail.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import EndpointConnectionError

from tests.heard import waits_heard
from tests.s3.contract import OF_A_STORE
from tests.s3.server import S3Server
from tests.sinks.files.world import FilesBoth, report
from tests.sinks.files.world import pieces as pieces_of
from tests.sinks.things import ROWS, staged_receipt, together
from tests.sinks.with_dead_letters import OWNER, DeltaBoth
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks import put_if_absent
from windrow.ingest.sinks.place import waiting_for_storage

pytestmark = pytest.mark.slow  # a server is started

LOG = "/_windrow/log/"


@pytest.mark.some(2, of="tests")
class TestParquetInStore(OF_A_STORE):
    """What hangs on how a commit is put.

    Dead letters lie on a disk: their store is Delta's, which has tests of its own.
    """

    @pytest.fixture(autouse=True)
    def _bucket(self, s3: S3Server) -> None:
        self.server = s3
        self.bucket = s3.bucket()

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> FilesBoth:
        return FilesBoth(
            f"{self.bucket}/{tmp_path.name}/orders", schema, metadata, dead=str(tmp_path / "dead")
        )

    def reopen(self, sink: FilesBoth) -> FilesBoth:
        return FilesBoth(sink.uri, sink.schema, sink.metadata, sink.written, sink.dead)

    def pieces(self, sink: FilesBoth) -> list[pa.Table]:
        return pieces_of(sink)

    def no_answer(self, sink: FilesBoth) -> AbstractContextManager[None]:
        self.server.fail("lost", "PUT", LOG)
        return nullcontext()


@pytest.fixture
def sink(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A prepared sink in a bucket of its own, that waits for nothing."""
    monkeypatch.setattr(put_if_absent, "WAITS", (0.0, 0.0, 0.0))
    made = FilesBoth(f"{s3.bucket()}/orders", ROWS, dead=str(tmp_path / "dead"))
    made.prepare()
    return made


@pytest.mark.some(2)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["lost", "cut", "slow_down", "broken"])
def test_a_commit_goes_through_faults(s3: S3Server, sink: Any, how: Any, times: int) -> None:
    """A put that is done and not answered is found by looking; one that isn't done is
    put again; each window is there once.
    """
    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    fault = s3.fail(how, "PUT", LOG, times)
    assert isinstance(sink.commit(made, staged), Done)
    assert fault.hit == (1 if how == "lost" else times)
    assert report(sink, range(1)).ok, str(report(sink, range(1)))


def test_a_store_that_never_answers_leaves_the_outcome_unknown(s3: S3Server, sink: Any) -> None:
    """After some tries the outcome is unknown, not refused; nothing is deleted, and the
    same commit goes through later.
    """
    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    fault = s3.fail("slow_down", "PUT", LOG, times=100)
    assert isinstance(sink.commit(made, staged), Unknown)
    assert 1 < fault.hit < 10
    s3.faults.clear()
    assert isinstance(sink.commit(made, staged), Done)
    assert report(sink, range(1)).ok


def test_two_racers_one_of_whom_hears_nothing(s3: S3Server, sink: Any) -> None:
    """Of two runs of one window, the one whose answer is lost knows by looking whether
    it was first.
    """
    racers = [FilesBoth(sink.uri, ROWS) for _ in range(2)]
    ready = [
        (racer, *staged_receipt(racer, 0, 0, f"racer {n}", dead=False))
        for n, racer in enumerate(racers)
    ]
    s3.fail("lost", "PUT", LOG)
    outcomes = together(
        [
            lambda racer=racer, made=made, files=files: racer.commit(made, files)
            for racer, made, files in ready
        ]
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyDone", "Done"]
    assert len({outcome.committed.receipt.attempt for outcome in outcomes}) == 1


@pytest.mark.some(1)
@pytest.mark.parametrize("how", ["lost", "cut", "slow_down", "broken"])
def test_a_table_is_begun_through_faults(
    s3: S3Server, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether only the answer is lost or nothing was put: it is put again; the trial of
    the store's promise is, too.
    """
    monkeypatch.setattr(put_if_absent, "WAITS", (0.0, 0.0, 0.0))
    made = FilesBoth(f"{s3.bucket()}/orders", ROWS)
    for _ in range(2):
        fault = s3.fail(how, "PUT", LOG, times=2)
        made.prepare()
        assert fault.hit
        s3.faults.clear()
    s3.fail(how, "PUT", "_windrow/trials/", times=2)
    made.refuse_unwritable()
    assert made.owner() == OWNER


def test_a_table_that_can_not_be_begun(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries that can be tried again: nothing was begun."""
    monkeypatch.setattr(put_if_absent, "WAITS", (0.0, 0.0, 0.0))
    made = FilesBoth(f"{s3.bucket()}/orders", ROWS)
    fault = s3.fail("slow_down", "PUT", LOG, times=100)
    with pytest.raises(UnreachableError, match="SlowDown"):
        made.prepare()
    assert 1 < fault.hit < 10
    s3.faults.clear()
    assert made.owner() is None


def test_a_trial_that_can_not_be_taken_away(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again; what stays is told in a sentence, and hides nothing that the
    trial has found.
    """
    monkeypatch.setattr(put_if_absent, "WAITS", (0.0, 0.0, 0.0))
    made = FilesBoth(f"{s3.bucket()}/orders", ROWS)
    fault = s3.fail("slow_down", "DELETE", "_windrow/trials/", times=2)
    made.refuse_unwritable()
    assert fault.hit == 2
    s3.fail("slow_down", "DELETE", "_windrow/trials/", times=100)
    with pytest.raises(UnreachableError, match="SlowDown"):
        made.refuse_unwritable()
    s3.fail("unconditional", "PUT", "/orders/", times=100)
    with pytest.raises(SpecError, match="exactly once"):
        made.refuse_unwritable()


@pytest.mark.parametrize("how", ["unconditional", "no_conditions"])
def test_a_store_without_conditional_puts_is_refused(s3: S3Server, how: Any) -> None:
    """One that says so, and one that takes no notice of the condition: both before
    anything is committed.
    """
    made = FilesBoth(f"{s3.bucket()}/orders", ROWS)
    s3.fail(how, "PUT", "/orders/", times=100)
    for ask in (made.refuse_unwritable, made.prepare):
        with pytest.raises(SpecError, match="exactly once"):
            ask()


def test_doctor_asks_the_store(s3: S3Server) -> None:
    """A bucket that isn't there is told as a store that can't be written; one that is
    there keeps nothing of the question.
    """
    with pytest.raises(UnreachableError, match="NoSuchBucket"):
        FilesBoth("s3://no-such-bucket-at-all/orders", ROWS).refuse_unwritable()
    bucket = s3.bucket()
    FilesBoth(f"{bucket}/orders", ROWS).refuse_unwritable()
    assert s3.client().list_objects_v2(Bucket=bucket.removeprefix("s3://"))["KeyCount"] == 0


def test_a_store_that_cannot_be_read_is_out_of_reach(s3: S3Server, sink: Any) -> None:
    """Before anything was put, that is no unknown outcome.

    And what clients sign with is in no object, no receipt and no error.
    """
    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    sink.commit(made, staged)
    client, bucket = s3.client(), sink.uri.removeprefix("s3://").partition("/")[0]
    for listed in client.list_objects_v2(Bucket=bucket)["Contents"]:
        assert (
            s3.secret.encode()
            not in client.get_object(Bucket=bucket, Key=listed["Key"])["Body"].read()
        )
    s3.fail("broken", "GET", LOG, times=1000)
    with pytest.raises(UnreachableError) as refused:
        sink.commit(made, staged)
    assert s3.secret not in str(refused.value)


@pytest.mark.parametrize("made", [FilesBoth, DeltaBoth])
def test_a_store_is_waited_for_aloud(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    """Whoever asks it, boto3, Arrow or deltalake, tries again in silence."""
    table = made(f"{s3.bucket()}/orders", ROWS)
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.0)
    with waits_heard() as heard:
        assert table.owner() is None
        assert heard.get(timeout=30).getMessage() == f"Waiting for the storage of {table.uri}"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with waits_heard() as heard, waiting_for_storage(table.uri):
        said = heard.get(timeout=30).getMessage()
    assert said.endswith(", and for credentials: AWS_ACCESS_KEY_ID isn't set")


def test_the_name_is_taken_by_itself(s3: S3Server, sink: Any) -> None:
    """An attempt whose entry arrived unanswered, and that comes again with the same
    receipt, hears that it is done.
    """
    made, staged = staged_receipt(sink, 0, dead=False)
    s3.fail("lost", "PUT", LOG)
    assert isinstance(sink.commit(made, staged), Done)
    assert isinstance(FilesBoth(sink.uri, ROWS).commit(made, staged), AlreadyDone)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no boto3 is told what to install, before anything is read; a Delta table
    in S3 needs none.
    """
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SpecError, match=r"windrow-ingest\[s3\]"):
        FilesBoth("s3://bucket/orders", ROWS)
    DeltaBoth("s3://bucket/orders", ROWS).refuse_unwritable()


def test_an_endpoint_with_a_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What boto3 says of an endpoint that nobody answers at has its address; the error hasn't."""
    address = "http://user:hunter22@127.0.0.1:9"

    def put_object(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url=address)

    client = SimpleNamespace(put_object=put_object)
    monkeypatch.setattr("windrow.ingest.sinks.put_if_absent.s3_client", lambda: client)
    with pytest.raises(OSError, match="EndpointConnectionError") as refused:
        put_if_absent.S3Puts("s3://lake/orders").put("log/1", b"")
    assert "hunter22" not in str(refused.value)
