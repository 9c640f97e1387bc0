"""Requests that are signed with the AWS credentials of this process, by botocore."""

from __future__ import annotations

from typing import Any

from windrow.ingest.errors import SpecError, require_extra

GLUE_HEADERS = {
    "Content-Type": "application/x-amz-json-1.1",
    "X-Amz-Target": "AWSGlue.GetSchemaVersion",
}


def sign_glue_request(url: str, region: str, body: bytes) -> dict[str, str]:
    """Returns the headers of a signed request for a schema's version.

    Raises:
        SpecError: botocore isn't installed, or finds no credentials.
    """
    credentials = _find_credentials("requests to AWS Glue")
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest("POST", url, data=body, headers=GLUE_HEADERS)
    SigV4Auth(credentials, "glue", region).add_auth(request)
    return dict(request.headers)


def sign_msk_url(region: str, seconds: int) -> str:
    """Returns the signed URL of a request that allows to connect to Amazon MSK for some seconds.

    Raises:
        SpecError: botocore isn't installed, or finds no credentials.
    """
    credentials = _find_credentials("a token for Amazon MSK")
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest(
        "GET",
        f"https://kafka.{region}.amazonaws.com/",
        params={"Action": "kafka-cluster:Connect"},
    )
    SigV4QueryAuth(credentials, "kafka-cluster", region, expires=seconds).add_auth(request)
    return str(request.url)


def _find_credentials(purpose: str) -> Any:
    with require_extra("s3", f"the credentials for {purpose} can't be found"):
        from botocore.session import Session
    credentials: Any = Session().get_credentials()
    if credentials is None:
        raise SpecError(
            f"no AWS credentials are found in this process, which signs {purpose}",
            "spec",
            "Give the process a role or a profile, as for any program of AWS. Spark's workers need"
            " it too.",
        )
    return credentials.get_frozen_credentials()
