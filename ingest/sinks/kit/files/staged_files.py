"""Staged files: their names, their folders, and the check that they are complete."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

import msgspec

from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.settings.paths import without_secrets
from windrow.ingest.sinks.kit.files.filesystem import Place, epoch_millis

DATA_FOLDER = "data"
"""The folder of a table's data files. Most stores stage in it."""

SWEPT = "swept"
"""The name of a sweep's note. Its value is an instant in epoch milliseconds.

Staged files with a last write until then are given up, so no commit may name them.
"""

LEAST_GRACE = timedelta(hours=1)
"""The shortest grace period. No run takes longer between two files."""


def to_safe_name(text: str) -> str:
    """Converts a text to a part of a file name: readable, and different for different texts."""
    readable = re.sub(r"[^A-Za-z0-9-]", "_", text)[:40]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


JOINING = "maintain"
"""The beginning of the names of attempts that join files."""


def staged_path(folder: str, attempt: str, ending: str = "parquet") -> str:
    """Makes a path for a file of an attempt, below a table. No other call makes the same path.

    It needs no escaping in a URL.
    """
    return f"{folder}/{to_safe_name(attempt)}-{uuid.uuid4().hex}.{ending}"


def window_folder(window_key: str, folder: str = DATA_FOLDER) -> str:
    """Returns the folder of the files that are staged for a window."""
    return f"{folder}/{window_key.replace(':', '').replace('-', '')}"


def cutoff_of(older_than: timedelta) -> int:
    """Returns the instant, in epoch milliseconds, before which staged files may be removed.

    Raises:
        ValueError: the grace period is too short.
    """
    if older_than < LEAST_GRACE:
        msg = (
            f"a grace period of {older_than} would take the files of runs that are still staging;"
            f" the least is {LEAST_GRACE}"
        )
        raise ValueError(msg)
    return epoch_millis(datetime.now(UTC) - older_than)


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows.

    Attributes:
        path: the path below the table.
        size: the size in bytes.
        rows: number of rows.
    """

    path: str
    size: int
    rows: int


class HasSize(Protocol):
    """A staged file as its stager described it."""

    @property
    def path(self) -> str:
        """The path, relative to the table's place."""

    @property
    def size(self) -> int:
        """The size in bytes."""


class HasNotes(Protocol):
    """The part of a table's state that staged files need (`table_store.TableState`)."""

    def note(self, name: str, /) -> int | None:
        """Returns the value of a note; None if it was never put."""


File_co = TypeVar("File_co", bound=HasSize, covariant=True)


class StagedFiles(Generic[File_co]):
    """The files that a store's stagers write and that stay until a commit.

    Args:
        uri: the place of the files.
        folders: the folders in it with files of attempts.
        file: the type of a file's description. A committable is such a description in JSON.
        folder: the opened place, if the caller has it already; None: `opened(uri)` opens it.
        consumed: whether a commit copies the rows out. If so, the files can be removed right
            after it, and the copy of a missing file fails. If not, the files become the
            table's: a commit must check them before it names them, and a sweep must put a note
            into the table before it removes files.
        opened: a function that opens a place by its URI, here and in tasks. It must be
            picklable, and hold no secrets.
    """

    do_if_gone = (
        "Nothing was committed; run the window again. Did somebody, or a vacuum with no retention,"
        " remove them? Tasks on other machines must write to the same place."
    )
    """The advice about files that are gone or cut short."""

    def __init__(
        self,
        uri: str,
        folders: Sequence[str],
        file: type[File_co],
        folder: Place | None = None,
        *,
        consumed: bool = False,
        opened: Callable[[str], Place] = Place,
    ) -> None:
        self.uri, self.folders, self.consumed = uri, folders, consumed
        self.folder = Place(uri) if folder is None else folder
        self._file, self._opened = file, opened

    @staticmethod
    def is_joined(file: HasSize) -> bool:
        """Returns whether a file has the rows of files that maintenance has joined."""
        return file.path.rpartition("/")[2].startswith(f"{JOINING}-")

    def progress_folder(self) -> Place:
        """Returns the folder of the files in which tasks note their progress. A sweep finds it.

        Readers of a folder of rows skip names that begin with an underscore.
        """
        return self._opened(f"{self.uri}/{self.folders[0]}/_progress")

    def decode_committables(self, committables: Iterable[str]) -> list[File_co]:
        """Returns the files that committables name."""
        return [msgspec.json.decode(word, type=self._file) for word in committables]

    def refuse_gone(self, files: Iterable[HasSize], state: HasNotes | None = None) -> None:
        """Refuses staged files that are gone, cut short or given up, before a commit names them.

        A vacuum without a grace period removes staged files too. A commit that named them would
        lose their rows.

        Args:
            files: the files to commit.
            state: the state that the commit changes. Its note says which files are given up.
                None if a sweep needs no note.

        Raises:
            RefusedError: there are such files; the error says how many.
        """
        expected_files = list(files)
        file_by_path = self.folder.stat_files(f.path for f in expected_files)
        missing_paths = [
            f.path
            for f in expected_files
            if (file := file_by_path[f.path]) is None or file.size != f.size
        ]
        if missing_paths:
            raise RefusedError(
                f"{len(missing_paths)} of {format_count(len(expected_files), 'staged file')} are"
                f" gone or cut short, the first is {missing_paths[0]} below"
                f" {without_secrets(self.folder.uri)}",
                "commit",
                self.do_if_gone,
            )
        swept = None if state is None else state.note(SWEPT)
        given_up_paths = [
            path
            for path, file in file_by_path.items()
            if swept is not None and file is not None and file.modified_millis <= swept
        ]
        if given_up_paths:
            raise RefusedError(
                f"{len(given_up_paths)} of {format_count(len(expected_files), 'staged file')} were"
                f" given up by windrow maintain, the first is {given_up_paths[0]}",
                "commit",
                "This attempt took longer than maintain.keep_files. Nothing was committed; run the"
                " window again.",
            )

    def written(self) -> dict[str, int]:
        """Returns the path of each file, with its last write in epoch milliseconds."""
        files = (file for folder in self.folders for file in self.folder.walk(folder))
        return {file.path: file.modified_millis for file in files}

    def written_until(self, cutoff: int) -> dict[str, int]:
        """Returns the files of `written` with a last write until an instant, sorted by path."""
        return {
            path: modified_millis
            for path, modified_millis in sorted(self.written().items())
            if modified_millis <= cutoff
        }

    def remove(self, paths: Iterable[str], *, dry_run: bool = False) -> list[str]:
        """Removes files, and returns their URIs.

        Args:
            paths: the paths of the files.
            dry_run: remove nothing.
        """
        removed = list(paths)
        for path in () if dry_run else removed:
            self.folder.remove(path)
        return [f"{self.uri}/{path}" for path in removed]

    def remove_consumed(self, committables: Iterable[str]) -> None:
        """Removes files whose rows a commit has copied out.

        A sweep removes the files that can't be removed now.
        """
        if self.consumed:
            with suppress(UnreachableError):
                self.remove(file.path for file in self.decode_committables(committables))

    def sweep(self, older_than: timedelta, *, dry_run: bool) -> list[str]:
        """Removes all old files whose rows a commit would copy out, and returns their URIs.

        A commit whose files are gone is refused, so the table needn't be asked.

        Raises:
            ValueError: the grace period is too short.
        """
        return self.remove(self.written_until(cutoff_of(older_than)), dry_run=dry_run)
