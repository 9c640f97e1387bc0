"""Files in a table's folder, on a disk or in an object store: staged files, receipts, logs."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import fs

from windrow.ingest.errors import DamagedError, SpecError, UnreachableError
from windrow.ingest.settings.paths import WAY_OUT, home, is_url, secret_part, without_secrets
from windrow.ingest.waiting import waiting_for

_STORES = ("s3", "hdfs")
"""The schemes that both Arrow, which stages, and Delta, which commits, know."""

_FORMS = (
    "Write a path, or a URI that begins with file://, s3:// or hdfs://: of object stores S3, and"
    " what speaks its protocol, is there; Google's (gs://) and Azure's (abfss://) come later."
)
_RENAME = (
    "Readers would take it for something else and look under another name: give the table a path"
    " without it."
)
_DRAFTS = "_windrow/drafts"

_NO_ROOM = (
    "database or disk is full",
    *(
        text
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        for text in (f"(os error {code})", f"[Errno {code}]")
    ),
)

_CHECK = (
    "Check the storage: that it answers, that it has room and that you may write there; then run"
    " this again."
)
_CHECK_S3 = (
    "Check that the bucket is there and can be reached, that AWS_REGION names its region, and that"
    " there are credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role;"
    " then run this again."
)


_BUSY = re.compile(
    r"AWS Error (SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
    r"|UNKNOWN \(HTTP status (429|5\d\d)\)) during "
    r"|status code: (429|5\d\d)\b"
    r"|^(429|5\d\d|SlowDown|ServiceUnavailable|InternalError|InternalFailure)$"
)
"""The codes of Arrow's client, deltalake's and boto3's. None of them can be the name of a file."""


def is_busy(error: str) -> bool:
    """Returns whether an error's text says that a store is overloaded, or fails temporarily."""
    return _BUSY.search(error) is not None


class ListedFile(msgspec.Struct, frozen=True):
    """A file in a place.

    Attributes:
        path: the path, relative to the place.
        size: the size in bytes.
        modified: the time of the last write.
    """

    path: str
    size: int
    modified: datetime

    @property
    def modified_millis(self) -> int:
        """The time of the last write in epoch milliseconds, rounded down."""
        return epoch_millis(self.modified)


def is_disk_full(error: str) -> bool:
    """Returns whether an error's text says that a disk has no room or a quota is used up.

    It is for errors of libraries that don't have the error's number. It knows the words of
    Rust, Python and SQLite.
    """
    return any(words in error for words in _NO_ROOM)


def _local(uri: str, setting: str) -> str:
    """Returns the path of a file:// URI."""
    try:
        return str(fs.FileSystem.from_uri(uri)[1])
    except pa.ArrowInvalid as error:
        raise SpecError(f"{setting} is {uri}: {error}", "spec", _FORMS) from error


def epoch_millis(moment: datetime) -> int:
    """Converts an instant to epoch milliseconds, rounded down."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Place:
    """A folder on a disk or in an object store, by `pyarrow.fs`. It is opened at the first use.

    All paths are relative to it. All methods raise SpecError if no such place can exist, and
    UnreachableError if reading or writing fails.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @classmethod
    def normalized(cls, uri: str, setting: str = "sink.path") -> Place:
        """Makes a place from a spec's text: an absolute path if it is local, else the URI. No I/O.

        Args:
            uri: the text.
            setting: the setting's name, for messages.

        Raises:
            SpecError: no table can be there, or the URI may hold a secret, which plans and
                receipts would show.
        """
        secret = secret_part(uri)
        if secret is not None:
            raise SpecError(
                f"{setting} is {without_secrets(uri)}, and holds {secret}",
                "spec",
                f"Leave it out: {WAY_OUT}.",
            )
        scheme, _, remote = uri.partition("://")
        if remote and scheme != "file":
            if scheme not in _STORES:
                raise SpecError(f"{setting} is {uri}: no table can be in {scheme}", "spec", _FORMS)
            return cls(uri.rstrip("/"))
        try:
            path = _local(uri, setting) if remote else str(home(uri).absolute())
        except ValueError as error:
            raise SpecError(f"{setting} {error}", "spec", _FORMS) from None
        if "%" in path:
            raise SpecError(f"{setting} is {path}, with a % in it", "spec", _RENAME)
        if "\\" in path or any(c < " " for c in path):
            raise SpecError(
                f"{setting} is {path!r}, with a backslash or a control character in it",
                "spec",
                _RENAME,
            )
        if not path.strip("/"):
            raise SpecError(
                f"{setting} is {path}, which is no folder for a table",
                "spec",
                "Name a folder of the table's own.",
            )
        return cls(path.rstrip("/"))

    @property
    def dead(self) -> Place:
        """The place of the table of the dead letters."""
        return Place(f"{self.uri}_dead")

    def is_same(self, folder: Place) -> bool:
        """Returns whether two normalized places are the same; follows links of local paths."""
        uri, other_uri = self.uri, folder.uri
        return uri == other_uri or (
            not is_url(uri)
            and not is_url(other_uri)
            and os.path.realpath(uri) == os.path.realpath(other_uri)
        )

    def is_same_table(self, folder: Place) -> bool:
        """Returns whether two places are the same, and so are those of their dead letters.

        A link may lead to the table, but not to the table of its dead letters.
        """
        return self.is_same(folder) and self.dead.is_same(folder.dead)

    def waiting(self) -> AbstractContextManager[None]:
        """Logs a message if an object store takes long, because its clients retry silently."""
        sought = ", and for credentials: AWS_ACCESS_KEY_ID isn't set" * (
            self.uri.startswith("s3:") and "AWS_ACCESS_KEY_ID" not in os.environ
        )
        return (
            waiting_for(f"the storage of {without_secrets(self.uri)}{sought}")
            if is_url(self.uri)
            else nullcontext()
        )

    def advice(self, reason: str) -> str:
        """Returns the advice about a place that can't be read or written.

        Args:
            reason: the error of the place's client, in words.
        """
        if is_busy(reason):
            return "The store refuses it for now; nothing has to be changed: run this again later."
        return _CHECK_S3 if self.uri.startswith("s3:") else _CHECK

    def other_kind_error(self) -> SpecError:
        """Returns the error for a place that has a table of another kind."""
        return SpecError(
            f"at {self.uri} lies a table of another kind",
            "setup",
            "Set sink.path to a place where nothing is, or sink.kind to the table's.",
        )

    def log_gone_error(self, log: str, folder: str, files: str) -> DamagedError:
        """Returns the error for a table whose log is gone while files of it are left.

        Args:
            log: the name of the folder or file that is gone.
            folder: the folder to restore from a backup.
            files: the files that are left. They must be removed if the table was removed on
                purpose.
        """
        return DamagedError(
            f"the log of {self.uri} ({log}) is gone, and files of rows are left",
            "setup",
            f"Is its disk mounted? If so, restore the folder {folder} from a backup. If the table"
            f" was moved, or removed for good, remove {files} here as well, then run this again.",
        )

    def filesystem(self) -> fs.FileSystem:
        """Returns Arrow's file system with this folder as its root."""
        with self._explained(""):
            return fs.SubTreeFileSystem(self._root, self._fs)

    def create(self, path: str) -> pa.NativeFile:
        """Opens a new file for writing, and creates its folders. Close it, then `finish` it.

        No other file has its path. On a disk the file has another name until it is finished, so
        the time of a file under its own name never changes. Otherwise a sweep could lose rows:

        1. A begins to write, and is stopped for a week.
        2. A sweep sees that the file is old, and notes in the table that it is given up.
        3. A continues, closes the file, and sees that it is younger than the note.
        4. The sweep removes the file.
        5. A commits a file that doesn't exist.
        """
        with self._explained(path):
            return self.open_output(self._draft(path))

    def finish(self, path: str, *, durable: bool = True) -> int:
        """Gives a created and closed file its name, and returns its size.

        Args:
            path: the file's path.
            durable: whether to sync it.

        Raises:
            UnreachableError: a sweep has removed it.
        """
        with self._explained(path):
            draft = self._draft(path)
            if draft != path:
                try:
                    self._fs.move(self._full(draft), self._full(path))
                except FileNotFoundError:
                    raise UnreachableError(
                        f"{without_secrets(self.uri)}/{draft} was removed while it was being"
                        " written",
                        "stage",
                        "Did a sweep remove it, with a grace period shorter than this run? Nothing"
                        " was committed: run the window again.",
                    ) from None
        return self.fsync(path) if durable else int(self._fs.get_file_info(self._full(path)).size)

    def fsync(self, path: str) -> int:
        """Syncs a closed file on a disk, and returns its size in bytes.

        Without that, a log could survive a loss of power, but not the files that it names.
        """
        with self._explained(path):
            full = self._full(path)
            if self.is_local:
                for name in (full, full.rpartition("/")[0]):
                    fsync_path(name)
            return int(self._fs.get_file_info(full).size)

    def put(self, path: str, content: bytes) -> None:
        """Writes a small file whose name is a digest of its content, whole or not at all.

        A file with this content stays; a damaged one is replaced.
        """
        with suppress(FileNotFoundError):
            if self.get(path) == content:
                return
        with self._explained(path):
            self._write(path, content)

    def put_new(self, path: str, content: bytes) -> None:
        """Puts a small file on a local disk under a name that doesn't exist yet, and syncs both.

        Raises:
            FileExistsError: the name exists.
            OSError: it can't be written, or the disk has no hard links.
        """
        full, drafts = Path(self._full(path)), Path(self._full(_DRAFTS))
        for folder in (full.parent, drafts):
            _make_folders(folder)
        draft = drafts / f"{uuid.uuid4().hex}.tmp"
        try:
            with draft.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            full.hardlink_to(draft)
            fsync_path(str(full.parent))
        finally:
            draft.unlink(missing_ok=True)

    def _write(self, path: str, content: bytes) -> None:
        """Writes a file. It has another name until it is complete, if others could read it."""
        draft = self._draft(path)
        if draft != path:
            # another process may write the same file at the same time
            draft = f"{path}.{uuid.uuid4().hex}.tmp"
        with self.open_output(draft) as out:
            out.write(content)
        self.fsync(draft)
        if draft != path:
            self._fs.move(self._full(draft), self._full(path))
            self.fsync(path)

    def open_output(self, path: str) -> pa.NativeFile:
        """Opens a file for writing, and creates missing folders."""
        full = self._full(path)
        # Only a disk needs the folder first.
        if self.is_local:
            _make_folders(Path(full).parent)
        return self._fs.open_output_stream(full, compression=None)

    def get(self, path: str) -> bytes:
        """Returns the whole content of a file.

        Raises:
            FileNotFoundError: it doesn't exist.
        """
        with (
            self._explained(path, or_missing=True),
            self._fs.open_input_stream(self._full(path)) as source,
        ):
            return bytes(source.read())

    def names(self, folder: str) -> set[str]:
        """Returns the names of the files in a folder; none if it doesn't exist."""
        with self._explained(folder):
            if not self.is_local:
                return {f.base_name for f in self._below(folder, recursive=False)}
            with suppress(FileNotFoundError), os.scandir(self._full(folder)) as listed:
                # not by Arrow, which asks for the size of each file: that takes ten times as long
                return {entry.name for entry in listed if entry.is_file()}
        return set()

    def folders(self, folder: str) -> set[str]:
        """Returns the names of the folders in a folder; none if it doesn't exist."""
        infos = self._listed(folder, recursive=False)
        return {info.base_name for info in infos if info.type == fs.FileType.Directory}

    def walk(self, folder: str) -> Iterator[ListedFile]:
        """Yields all files in a folder and its subfolders."""
        for f in self._below(folder, recursive=True):
            if f.mtime is not None:
                yield ListedFile(f.path[len(self._root) :].lstrip("/"), f.size, f.mtime)

    def stat_files(self, paths: Iterable[str]) -> dict[str, ListedFile | None]:
        """Returns the size and time of each file; None for a file that doesn't exist."""
        requested_paths = list(paths)
        with self._explained(""):
            infos = self._fs.get_file_info([self._full(p) for p in requested_paths])
        return {
            p: ListedFile(p, i.size, i.mtime) if i.type == fs.FileType.File else None
            for p, i in zip(requested_paths, infos, strict=True)
        }

    def remove(self, path: str) -> None:
        """Deletes one file, if it exists."""
        with self._explained(path), suppress(FileNotFoundError):
            self._fs.delete_file(self._full(path))

    def _below(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        return [f for f in self._listed(folder, recursive=recursive) if f.type == fs.FileType.File]

    def _listed(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        """Returns the entries of a folder, or also of its subfolders; none if it doesn't exist."""
        selector = fs.FileSelector(self._full(folder), allow_not_found=True, recursive=recursive)
        with self._explained(folder):
            # A race in Arrow, for which it is asked twice:
            # 1. Arrow finds no folder.
            # 2. Another run creates the folder.
            # 3. Arrow asks whether the folder exists. As it does, Arrow raises FileNotFoundError.
            # 4. Folders are never removed, so the second question finds it.
            with suppress(FileNotFoundError):
                return list(self._fs.get_file_info(selector))
            return list(self._fs.get_file_info(selector))

    def _draft(self, path: str) -> str:
        """Returns the name of a file while it is written.

        It is another name if other processes could read the incomplete file.
        """
        return f"{path}.tmp" if self._fs.type_name in {"local", "hdfs"} else path

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        """Arrow's file system and the root in it. For an object store it may use the network."""
        try:
            with self.waiting():
                filesystem, root = fs.FileSystem.from_uri(self.uri)
        except pa.ArrowInvalid as error:
            raise self._senseless(without_secrets(self.uri), error) from error
        except OSError as error:
            raise UnreachableError(
                f"{without_secrets(self.uri)} can't be reached: {self._reason(error)}",
                "setup",
                self.advice(str(error)),
            ) from error
        return filesystem, root

    @property
    def _fs(self) -> fs.FileSystem:
        return self._opened[0]

    @property
    def _root(self) -> str:
        return self._opened[1]

    @property
    def is_local(self) -> bool:
        """Whether the place is on a disk of this machine, or mounted like one."""
        return isinstance(self._fs, fs.LocalFileSystem)

    @contextmanager
    def _explained(self, path: str, *, or_missing: bool = False) -> Iterator[None]:
        """Converts Arrow's and the operating system's errors to windrow's.

        Args:
            path: the path that is read or written.
            or_missing: leave FileNotFoundError as it is.
        """
        where = f"{without_secrets(self.uri)}/{path}".rstrip("/")
        # Opens the place first: `_opened` logs its own wait.
        assert self._opened
        try:
            with self.waiting():
                yield
        except pa.ArrowInvalid as error:
            raise self._senseless(where, error) from error
        except OSError as error:
            if or_missing and isinstance(error, FileNotFoundError):
                raise
            raise UnreachableError(
                f"{where} can't be read or written: {self._reason(error)}",
                "setup",
                self.advice(str(error)),
            ) from error

    def _senseless(self, where: str, error: pa.ArrowInvalid) -> SpecError:
        return SpecError(
            f"sink.path makes no sense at {where}: {self._reason(error)}", "spec", _FORMS
        )

    def _reason(self, error: Exception) -> str:
        return (
            str(error)
            .strip()
            .partition("\n")[0]
            .replace(self.uri, without_secrets(self.uri))
            .rstrip(".")[:300]
        )

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"


def _make_folders(folder: Path) -> None:
    """Creates folders, and syncs their names, so that they survive a loss of power."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync_path(str(folder.parent))


def fsync_path(path: str) -> None:
    """Syncs a file of a local disk, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
