"""The Delta sink in an object store: the same promises by deltalake's conditional put,
through lost answers and servers that fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.s3.contract import OF_A_STORE
from tests.s3.server import S3Server
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.things import ROWS, produced, staged_receipt, together
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.testing.checker import Report, check

LOG = "/orders/_delta_log/"


@pytest.mark.some(2, of="tests")
class TestDeltaInStore(OF_A_STORE):
    """What hangs on how a commit is made, table and dead letters alike."""

    @pytest.fixture(autouse=True)
    def _bucket(self, s3: S3Server) -> None:
        self.server = s3
        self.bucket = s3.bucket()

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> DeltaBoth:
        return DeltaBoth(f"{self.bucket}/{tmp_path.name}/orders", schema, metadata)

    def reopen(self, sink: DeltaBoth) -> DeltaBoth:
        return DeltaBoth(sink.uri, sink.schema, sink.metadata)

    def pieces(self, sink: DeltaBoth) -> list[pa.Table]:
        return delta_pieces(sink.uri)

    def no_answer(self, sink: DeltaBoth) -> AbstractContextManager[None]:
        self.server.fail("lost", "PUT", LOG)
        return nullcontext()


@pytest.fixture
def sink(s3: S3Server) -> Any:
    """A prepared table in a bucket of its own, whose commits wait for nothing."""
    made = DeltaBoth(f"{s3.bucket()}/orders", ROWS)
    made.store.waits = (0.0, 0.0, 0.0)
    made.prepare()
    return made


def report(sink: DeltaBoth, numbers: range) -> Report:
    """What the checker says of all windows."""
    receipts = [c.receipt for c in sink.receipts()]
    return check(
        produced(numbers),
        delta_pieces(sink.uri),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("how", ["lost", "cut", "slow_down", "broken"])
def test_a_commit_goes_through_faults(s3: S3Server, sink: Any, how: Any) -> None:
    """A commit that is done and not answered is found by looking; one that isn't done
    is sent again; the window is there once.
    """
    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    fault = s3.fail(how, "PUT", LOG)
    assert isinstance(sink.commit(made, staged), Done)
    assert fault.hit == 1
    assert isinstance(DeltaBoth(sink.uri, ROWS).commit(made, staged), AlreadyDone)
    assert report(sink, range(1)).ok, str(report(sink, range(1)))


def test_two_racers_one_of_whom_hears_nothing(s3: S3Server, sink: Any) -> None:
    """Of two runs of one window, the one whose answer is lost knows by looking whether
    it was first.
    """
    racers = [DeltaBoth(sink.uri, ROWS) for _ in range(2)]
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


def test_no_secret_is_kept(s3: S3Server, sink: Any) -> None:
    """What the store's clients sign with is in no object, no receipt and no error; a
    staged file that can't be put is out of reach.
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
    with pytest.raises(UnreachableError) as refused:
        staged_receipt(DeltaBoth("s3://no-such-bucket-at-all/orders", ROWS), 1)
    assert s3.secret not in str(refused.value)
    assert "secret" not in str(refused.value).lower().replace("aws_secret_access_key", "")


def test_doctor_asks_the_store(s3: S3Server) -> None:
    """Whether it can be written and keeps its conditions: a bucket that isn't there,
    and a store that takes no notice, are told.
    """
    with pytest.raises(UnreachableError, match="NoSuchBucket"):
        DeltaBoth("s3://no-such-bucket-at-all/orders", ROWS).refuse_unwritable()
    made = DeltaBoth(f"{s3.bucket()}/orders", ROWS)
    made.refuse_unwritable()
    s3.fail("unconditional", "PUT", "/orders/", times=2)
    with pytest.raises(SpecError, match="If-None-Match"):
        made.refuse_unwritable()
