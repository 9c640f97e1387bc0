"""A small file under a name that is taken once, which is what a log stands on: a hard
link on a disk, a conditional put in S3.

A put may be answered with "taken" although it was this one: what lies there then tells
whose it is. So who puts looks at the log again, whatever the answer was.
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
"""Seconds before each further try after a put that wasn't answered."""

_S3 = "s3://"
_TRIALS = "_windrow/trials"
_UNKNOWN_CONDITION = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
"""What stores answer that don't know the condition."""

_NO_PROMISE = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_STORES = (
    "Let sink.path be a folder on a disk with hard links, or a bucket of a store with conditional"
    " puts; or take another kind of sink."
)


class PutIfAbsent(Protocol):
    """Puts files under names that nobody has taken."""

    def put(self, path: str, content: bytes) -> None:
        """Put a file, whole and durable.

        Raises:
            FileExistsError: the name is taken; perhaps by this very put, of which an
                answer was lost.
            OSError: it isn't known whether the file is there.
        """

    def check(self, path: str, content: bytes) -> None:
        """Put a file that is there, with the content that it has, where somebody might not keep the promise.

        Raises:
            SpecError: it was put, so any other one would have been, too; or it may not be put.
            UnreachableError: that can't be told.
        """  # noqa: E501


def put_if_absent(uri: str, place: Place) -> PutIfAbsent:
    """What a place offers.

    Raises:
        SpecError: it has nothing of the kind.
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
    """Why nothing can be put below a place, before anything was: what a person has to
    fix, or what may pass.
    """
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
    """Do what comes before anything can be committed below a place; what may pass is tried again.

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
        """Every link keeps it."""


class S3Puts:
    """In S3, and stores that speak as it does: a put that fails where something lies.

    Raises:
        SpecError: what it stands on is not installed.
    """

    def __init__(self, uri: str) -> None:
        if not has_s3():
            what = f"sink.path is {uri}, and boto3, which puts on a condition, is not installed"
            raise SpecError(what, "spec", "Install windrow[s3], or boto3.")
        self._uri = uri
        self._bucket, _, self._prefix = uri.removeprefix(_S3).partition("/")

    def put(self, path: str, content: bytes) -> None:
        """Asked once: what is asked again without a look would hear of itself that the
        name is taken.
        """
        with self._explained(path):
            _client().put_object(
                Bucket=self._bucket, Key=self._key(path), Body=content, IfNoneMatch="*"
            )

    def check(self, path: str, content: bytes) -> None:
        """A store that doesn't know the condition may take no notice of it."""

        def put() -> None:
            with suppress(FileExistsError):
                self.put(path, content)
                raise OSError(errno.ENOTSUP, "the store takes no notice of If-None-Match")

        retried(self._uri, put)

    def try_place(self) -> None:
        """Put a file that nobody needs, twice, and take it away again; raises as `check`."""
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
        """What goes wrong in the block as an error of the system's."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with waiting_for_storage(self._uri):
                yield
        except ClientError as error:
            raise self._meant(path, error) from error
        except (
            BotoCoreError
        ) as error:  # some of these name keys and addresses, none a secret; their kind is enough
            raise OSError(errno.EIO, type(error).__name__, path) from error

    def _meant(self, path: str, error: ClientError) -> OSError:
        """What an answer other than "done" means; 409: another put of the name was on its way."""
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
    """The process's one client, with what the SDK's own chain finds: the environment, a
    profile, a role.

    To make one takes a while.
    """
    import boto3
    from botocore.config import Config

    once = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
    return boto3.session.Session().client("s3", config=once)
