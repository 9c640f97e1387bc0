"""Puts small files under names that can be taken only once, for logs.

On a disk by a hard link, in S3 by a conditional put. "Taken" may be the answer to a put that
arrived, of which the first answer was lost; so whoever puts reads the log again.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.sinks.place import Place, to_check, waiting_for_storage

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

WAITS = (0.2, 1.0, 3.0)
"""The seconds before each further try after a put that wasn't answered."""

_S3 = "s3://"
_TRIALS = "_windrow/trials"
_UNKNOWN_CONDITION = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
"""The answers of stores that don't know the condition."""

_NO_PROMISE = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_STORES = (
    "Let sink.path be a folder on a disk with hard links, or a bucket of a store with conditional"
    " puts; or take another kind of sink."
)


class PutIfAbsent(Protocol):
    """Puts files under names that aren't taken."""

    def put(self, path: str, content: bytes) -> None:
        """Put a file, whole and durable.

        Raises:
            FileExistsError: the name is taken; perhaps by this very put, whose answer was lost.
            OSError: nobody knows whether the file was put.
        """

    def check(self, path: str, content: bytes) -> None:
        """Put an existing file again, where a store might ignore the condition.

        Raises:
            SpecError: it was put, so any other file would be, too; or putting isn't allowed.
            UnreachableError: that can't be told.
        """


def put_if_absent(uri: str, place: Place) -> PutIfAbsent:
    """Choose the way to put by a place's scheme.

    Raises:
        SpecError: there is none.
    """
    if uri.startswith(_S3):
        return S3Puts(uri)
    if "://" in uri:
        scheme = uri.partition("://")[0]
        raise SpecError(
            f"sink.path is {uri}: in {scheme} no commit of kind files can be exactly once",
            "spec",
            _STORES,
        )
    return HardLinks(place)


def refusal(uri: str, error: OSError) -> SpecError | UnreachableError:
    """The error for a first put that failed: a SpecError if a person has to act."""
    why = error.strerror or str(error)
    if error.errno in _NO_PROMISE:
        return SpecError(
            f"no commit to {uri} can be exactly once: no name there can be taken only once ({why})",
            "setup",
            _STORES,
        )
    if error.errno == errno.EACCES:
        do = (
            "Give windrow's user the rights to get, put, list and delete below it, or set sink.path"
            " to another place."
        )
        return SpecError(f"nothing may be written below {uri} ({why})", "setup", do)
    what = f"nothing can be put below {uri}: {why}"
    return UnreachableError(what, "setup", to_check(uri))


def retried(uri: str, step: Callable[[], None]) -> None:
    """Do a step before the first commit below a place, and again after errors that may pass.

    `step`: may be done more than once.

    Raises:
        SpecError, UnreachableError: as `refusal` has it.
    """
    for wait in (*WAITS, None):
        try:
            step()
        except OSError as error:
            why = refusal(uri, error)
            if wait is None or isinstance(why, SpecError):
                raise why from error
            with waiting_for_storage(uri):
                time.sleep(wait)
        else:
            return


class HardLinks:
    """On a disk: a synced draft, linked under the name."""

    def __init__(self, place: Place) -> None:
        self.put = place.put_new

    def check(self, path: str, content: bytes) -> None:
        """A link never ignores a taken name."""


class S3Puts:
    """In S3 and stores with its API: a put that fails if the object exists.

    Raises:
        SpecError: boto3 isn't installed.
    """

    def __init__(self, uri: str) -> None:
        if not has_s3():
            what = f"sink.path is {uri}, and boto3, which puts on a condition, is not installed"
            raise SpecError(what, "spec", "Install windrow[s3], or boto3.")
        self._uri = uri
        self._bucket, _, self._prefix = uri.removeprefix(_S3).partition("/")

    def put(self, path: str, content: bytes) -> None:
        """Sent once: a retry by the client would be told that its own name is taken."""
        with self._explained(path):
            _client().put_object(
                Bucket=self._bucket, Key=self._key(path), Body=content, IfNoneMatch="*"
            )

    def check(self, path: str, content: bytes) -> None:
        """A store that doesn't know the condition may ignore it."""

        def put() -> None:
            with suppress(FileExistsError):
                self.put(path, content)
                raise OSError(errno.ENOTSUP, "the store takes no notice of If-None-Match")

        retried(self._uri, put)

    def try_place(self) -> None:
        """Put a trial file twice, and delete it; raises as `check`."""
        path = f"{_TRIALS}/{uuid.uuid4().hex}"

        def put() -> None:
            with suppress(FileExistsError):  # an earlier try arrived
                self.put(path, b"")

        retried(self._uri, put)
        try:
            self.check(path, b"")
        except BaseException:
            with suppress(OSError):  # the first trouble is the one to be told
                self._delete(path)
            raise
        retried(self._uri, lambda: self._delete(path))

    def _delete(self, path: str) -> None:
        with self._explained(path):
            _client().delete_object(Bucket=self._bucket, Key=self._key(path))

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".lstrip("/")

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Turn the client's errors into those of the operating system."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with waiting_for_storage(self._uri):
                yield
        except ClientError as error:
            raise self._meant(path, error) from error
        except BotoCoreError as error:  # names keys and addresses, so only its kind is told
            raise OSError(errno.EIO, type(error).__name__, path) from error

    def _meant(self, path: str, error: ClientError) -> OSError:
        """The error for an answer other than "done"; 409: another put of the name was under way."""
        code, status = (
            error.response["Error"].get("Code", ""),
            error.response["ResponseMetadata"].get("HTTPStatusCode", 0),
        )
        if status == 412:
            return FileExistsError(errno.EEXIST, "taken", path)
        if status in {401, 403}:
            return PermissionError(errno.EACCES, code, path)
        return OSError(
            errno.ENOTSUP if code in _UNKNOWN_CONDITION or status == 501 else errno.EIO,
            code or str(status),
            path,
        )


def has_s3() -> bool:
    """Whether the extra `s3` is installed."""
    return find_spec("boto3") is not None


@cache
def _client() -> Any:
    """The process's one client, with the SDK's own search for credentials."""
    import boto3
    from botocore.config import Config

    once = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
    return boto3.session.Session().client("s3", config=once)
