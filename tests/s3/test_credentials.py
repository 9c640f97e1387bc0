"""Where the clients of an object store find credentials: in a profile, or by a web identity."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.s3.server import S3Server

pytestmark = pytest.mark.long  # each case starts a process

PROFILES = """\
[profile shop]
credential_process = {program}
"""
PROGRAM = """\
#!/bin/sh
echo '{"Version": 1, "AccessKeyId": "KEY-OF-SHOP", "SecretAccessKey": "s", "SessionToken": "t"}'
"""

COMMIT = """\
import sys
from pathlib import Path
import pyarrow as pa
from tests.sinks.worlds import world_of
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.testing.contracts.windows import ROWS, commit_rows
kind, url = sys.argv[1:]
rows = pa.RecordBatch.from_pylist([{"id": "a", "amount": 1}], schema=ROWS)
commit_rows(world_of(kind).sink_at(url), rows)
source = TableSection(table=url).source(Path("/"))
assert source.schema().names
source.version()
"""
"""A table and a lookup in it, in a process of its own: Arrow reads profiles once in a process."""

PUT = """\
import sys
kind, url = sys.argv[1:]
if kind == "files":
    from windrow.ingest.sinks.kit.files.put_if_absent import s3_client
    s3_client().put_object(Bucket=url.split("/")[2], Key="x", Body=b"")
else:
    import deltalake, pyarrow
    deltalake.write_deltalake(url, pyarrow.table({"x": [1]}))
"""
"""The log's client alone. Arrow's, which writes files, takes no other address of STS than AWS's."""


def run(program: str, kind: str, s3: S3Server, **variables: str) -> None:
    """Runs a program in a process without keys in its environment."""
    environment = {k: v for k, v in os.environ.items() if "ACCESS_KEY" not in k}
    url = f"{s3.bucket()}/orders"
    s3.signers.clear()
    done = subprocess.run(
        [sys.executable, "-c", program, kind, url],
        env={**environment, "AWS_FORCE_CREDENTIAL_LOAD": "true", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_profile(kind: str, s3: S3Server, tmp_path: Path) -> None:
    """All clients of a table sign with the keys that the profile's program prints."""
    program, profiles = tmp_path / "keys", tmp_path / "config"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    profiles.write_text(PROFILES.format(program=program))
    run(COMMIT, kind, s3, AWS_PROFILE="shop", AWS_CONFIG_FILE=str(profiles))
    assert s3.signers == {"KEY-OF-SHOP"}


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_web_identity(kind: str, s3: S3Server, tmp_path: Path) -> None:
    """The log's client changes a token for keys of the role, and signs with them."""
    token = tmp_path / "token"
    token.write_text("eyJhbGciOiJub25lIn0.e30.x")
    run(
        PUT,
        kind,
        s3,
        AWS_WEB_IDENTITY_TOKEN_FILE=str(token),
        AWS_ROLE_ARN="arn:aws:iam::123456789012:role/loader",
        AWS_ROLE_SESSION_NAME="loader",
    )
    assert {signer[:4] for signer in s3.signers} == {"ASIA"}
