"""Puts small files under names that can be used only once, for logs.

On a disk this is a hard link, in S3 a conditional put. "The name is taken" may be the answer to
the caller's own put, if the first answer was lost. So the caller reads the log again after this
answer.
"""

from __future__ import annotations

import errno
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from windrow.ingest.call_limits import limit_body, run_in_time
from windrow.ingest.errors import SpecError, UnreachableError, how_to_install
from windrow.ingest.retry import STORE_WAITS, retry
from windrow.ingest.sinks.kit.files.filesystem import Place

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_S3 = "s3://"
TRIALS = "_windrow/doctor"
"""The folder of the files that `windrow doctor --write` puts and removes."""

_UNKNOWN_CONDITION = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
"""The error codes of stores that don't know the condition."""

_NO_PROMISE = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_STORES = (
    "Let sink.path be a folder on a disk with hard links, or a bucket of a store with conditional"
    " puts; or take another kind of sink."
)


REQUEST_SECONDS = 60.0
"""The seconds for a request to S3 with its credentials, however slowly the answer comes."""

MOST_BYTES = 1 << 20
"""The most bytes of an answer of S3, which is empty or an error."""


class PutIfAbsent(ABC):
    """Puts files below a place, under names that don't exist yet."""

    waits: ClassVar = STORE_WAITS
    """The seconds before each further try after a put that wasn't answered."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Puts a file, whole and durable.

        Raises:
            FileExistsError: the name is taken, perhaps by this very put, whose answer was lost.
            OSError: it is unknown whether the file was put.
        """

    @abstractmethod
    def check(self, path: str, content: bytes) -> None:
        """Puts an existing file again, if a store might ignore the condition.

        Raises:
            SpecError: the store overwrote the file, so it could overwrite any file; or putting
                isn't allowed.
            UnreachableError: the store doesn't answer.
        """

    def retry(self, step: Callable[[], None]) -> None:
        """Runs a step before the first commit below the place, again after temporary errors.

        Args:
            step: the step; it may be run more than once.

        Raises:
            SpecError, UnreachableError: the error of `refusal`.
        """

        def take_step() -> None:
            try:
                step()
            except OSError as error:
                raise refusal(self.folder, error) from error

        retry(take_step, lambda error: isinstance(error, UnreachableError), self.waits)


def put_if_absent(folder: Place) -> PutIfAbsent:
    """Chooses the way to put, by a place's scheme.

    Raises:
        SpecError: names there can't be restricted to one use.
    """
    uri = folder.uri
    if uri.startswith(_S3):
        return S3Puts(folder)
    if "://" in uri:
        scheme = uri.partition("://")[0]
        raise SpecError(
            f"sink.path is {uri}: in {scheme} no commit of kind files can be exactly once",
            "spec",
            _STORES,
        )
    return HardLinks(folder)


def refusal(folder: Place, error: OSError) -> SpecError | UnreachableError:
    """Returns the error for a first put that failed: a SpecError if a person must act."""
    uri, reason = folder.uri, error.strerror or str(error)
    if error.errno in _NO_PROMISE:
        return SpecError(
            f"no commit to {uri} can be exactly once: no name there can be taken only once"
            f" ({reason})",
            "setup",
            _STORES,
        )
    if error.errno == errno.EACCES:
        return SpecError(
            f"nothing may be written below {uri} ({reason})",
            "setup",
            "Give windrow's user the rights to get, put, list and delete below it, or set sink.path"
            " to another place.",
        )
    return UnreachableError(
        f"nothing can be put below {uri}: {reason}", "setup", folder.advice(reason)
    )


class HardLinks(PutIfAbsent):
    """Puts files on a disk: a synced draft gets its name by a hard link."""

    def put(self, path: str, content: bytes) -> None:
        """Puts a file."""
        self.folder.put_new(path, content)

    def check(self, path: str, content: bytes) -> None:
        """Does nothing: a hard link never replaces an existing file."""


class S3Puts(PutIfAbsent):
    """Puts objects in S3, and in stores with its API: a put fails if the object exists.

    Raises:
        SpecError: boto3 isn't installed.
    """

    def __init__(self, folder: Place) -> None:
        if not has_s3():
            raise SpecError(
                f"sink.path is {folder.uri}, and boto3, which puts on a condition, is not"
                " installed",
                "spec",
                how_to_install("s3"),
            )
        super().__init__(folder)
        self._bucket, _, self._prefix = folder.uri.removeprefix(_S3).partition("/")

    def put(self, path: str, content: bytes) -> None:
        """Puts an object. The request is sent once, because a retry could find its own object."""
        answer = self._request("put_object", path, Body=content, IfNoneMatch="*")
        if "ETag" not in answer:
            # a proxy's page, for example: the object isn't there
            raise OSError(errno.EIO, "an answer that isn't S3's", path)

    def check(self, path: str, content: bytes) -> None:
        """Puts an existing object again. A store that ignores the condition overwrites it."""

        def put() -> None:
            with suppress(FileExistsError):
                self.put(path, content)
                raise OSError(errno.ENOTSUP, "the store takes no notice of If-None-Match")

        self.retry(put)

    def try_place(self) -> None:
        """Puts a trial file twice, and deletes it.

        Raises:
            SpecError, UnreachableError: as `check`.
        """
        path = f"{TRIALS}/{uuid.uuid4().hex}"

        def put() -> None:
            # An earlier try may have arrived, and then the file exists.
            with suppress(FileExistsError):
                self.put(path, b"")

        self.retry(put)
        try:
            self.check(path, b"")
        except BaseException:
            # The error of the check is raised, not that of the deletion.
            with suppress(OSError):
                self._delete(path)
            raise
        self.retry(lambda: self._delete(path))

    def _delete(self, path: str) -> None:
        self._request("delete_object", path)

    def _request(self, operation: str, path: str, **arguments: object) -> Mapping[str, object]:
        """Sends a request about an object, within a limit of time."""
        key = f"{self._prefix}/{path}".lstrip("/")
        with self._explained(path):
            send = getattr(s3_client(), operation)
            return run_in_time(
                lambda: send(Bucket=self._bucket, Key=key, **arguments), REQUEST_SECONDS
            )

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Converts the client's errors to those of the operating system."""
        from botocore.exceptions import ClientError

        try:
            with self.folder.waiting():
                yield
        except ClientError as error:
            raise self._as_os_error(path, error) from error
        except Exception as error:
            # The client fails on odd answers in its own ways. The error's text has keys and
            # addresses, so only its type is shown.
            raise OSError(errno.EIO, type(error).__name__, path) from error

    def _as_os_error(self, path: str, error: ClientError) -> OSError:
        """Returns the error for an error response of the store.

        Status 409 means that another put of the same name was in progress.
        """
        code = error.response["Error"].get("Code", "")
        status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
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
    """Returns whether the extra `s3` is installed."""
    return find_spec("boto3") is not None


@cache
def s3_client() -> Any:
    """Returns the process's client, which finds credentials as the SDK does.

    An answer's body is limited, for which boto3 has no public way.
    """
    import boto3
    from botocore.config import Config

    once = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
    client = boto3.session.Session().client("s3", config=once)
    session = client._endpoint.http_session  # noqa: SLF001
    send = session.send

    def send_limited(request: Any) -> Any:
        request.stream_output = True  # the body isn't read before it is limited
        response = send(request)
        limit_body(response.raw, MOST_BYTES)
        return response

    session.send = send_limited
    return client
