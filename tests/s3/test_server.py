"""The S3 server of the tests: it keeps S3's promises of a conditional put, and its faults work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.s3.server import S3Server
from windrow.ingest.testing.contracts.windows import run_together

pytestmark = pytest.mark.slow  # a server is started


def status(put: Callable[[], Any]) -> int:
    """Returns the status of a put's answer; 0 without an answer."""
    try:
        return int(put()["ResponseMetadata"]["HTTPStatusCode"])
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    except BotoCoreError:
        return 0


def put(client: Any, bucket: str, key: str, content: bytes) -> Callable[[], int]:
    """Returns a function that puts a key only if it doesn't exist, and returns the status."""
    return lambda: status(
        lambda: client.put_object(
            Bucket=bucket.removeprefix("s3://"), Key=key, Body=content, IfNoneMatch="*"
        )
    )


def content(client: Any, bucket: str, key: str) -> bytes:
    """Returns the content of a key."""
    return bytes(client.get_object(Bucket=bucket.removeprefix("s3://"), Key=key)["Body"].read())


def test_of_sixteen_puts_of_one_key_one_wins(s3: S3Server) -> None:
    """Of sixteen concurrent puts of one key one succeeds, the others get 412, and the key has
    the one's content.
    """
    bucket, client = s3.bucket(), s3.client()
    for n in range(8):
        answers = run_together([put(client, bucket, f"key {n}", b"%d" % i) for i in range(16)])
        assert sorted(answers) == [200, *[412] * 15]
        assert content(client, bucket, f"key {n}") == b"%d" % answers.index(200)


def test_a_put_without_the_condition_overwrites(s3: S3Server) -> None:
    """A put without the condition overwrites."""
    bucket, client = s3.bucket(), s3.client()
    for body in (b"1", b"2"):
        client.put_object(Bucket=bucket.removeprefix("s3://"), Key="k", Body=body)
    assert content(client, bucket, "k") == b"2"


def test_a_lost_answer_is_of_a_put_that_is_done(s3: S3Server) -> None:
    """A put with a lost answer is done, and the same put again gets 412."""
    bucket, client = s3.bucket(), s3.client()
    s3.fail("lost", "PUT", "/k")
    assert put(client, bucket, "k", b"mine")() == 0
    assert content(client, bucket, "k") == b"mine"
    assert put(client, bucket, "k", b"mine")() == 412


@pytest.mark.parametrize(
    ("mode", "status_code"),
    [("cut", 0), ("slow_down", 503), ("broken", 500), ("no_conditions", 501)],
)
def test_other_faults_do_nothing(s3: S3Server, mode: Any, status_code: int) -> None:
    """Other faults affect the given number of requests, which do nothing.

    The next request succeeds.
    """
    bucket, client = s3.bucket(), s3.client()
    fault = s3.fail(mode, "PUT", "/k", times=2)
    assert [put(client, bucket, "k", b"mine")() for _ in range(3)] == [
        status_code,
        status_code,
        200,
    ]
    assert fault.hit == 2


def test_it_speaks_on_loopback_alone(s3: S3Server, tmp_path: Path) -> None:
    """The environment of deltalake, Arrow and boto3 has this server's address and no other."""
    addresses = {value for value in s3.env.values() if "//" in value}
    assert addresses == {f"http://127.0.0.1:{s3.port}"}
