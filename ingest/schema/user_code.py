"""Loading of a user's code by a reference to it.

A reference is `FILE.py:Name`, relative to the spec's folder, or `package.module:Name`. It names
the DataFrameModel of a schema, or a function.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from windrow.ingest.errors import SpecError, foreign_exceptions

T = TypeVar("T")

_IMPORTS = "`import pandera.polars as pa` and `import polars as pl`"
_LOADED: dict[CodeReference, tuple[str, Any]] = {}
"""Digest of each loaded code, and the loaded object, by reference."""

_LOADING = threading.Lock()
_THREAD = threading.local()


@dataclass(frozen=True)
class CodeReference:
    """Reference to code: `FILE.py:Name` in `folder`, or `package.module:Name`.

    A pickled reference contains the file's present text. So a worker may run on a machine
    without the file, and all tasks of a run use the same text. A module's text isn't
    contained, so the module must be installed on the workers.

    Attributes:
        reference: the reference.
        folder: the spec's folder.
        text: the file's text if the reference was unpickled; None if the file is read when
            needed.
    """

    kind: ClassVar[str]
    """windrow's word for the code, for errors."""

    named: ClassVar[str]
    """Python's word for the code, for errors."""

    advice: ClassVar[str]
    """Advice how to write such a reference, for errors."""

    reference: str
    folder: Path
    text: bytes | None = field(default=None, compare=False, repr=False)
    """The file's text if the reference was unpickled; None if the file is read when needed."""

    def __str__(self) -> str:
        return self.reference

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the reference with the file's text."""
        return type(self), (self.reference, self.folder, self.content() if self.is_file else None)

    @property
    def file_or_module(self) -> str:
        return self.reference.rpartition(":")[0]

    @property
    def name(self) -> str:
        """The name in the file or module."""
        return self.reference.rpartition(":")[2]

    @property
    def is_file(self) -> bool:
        """Whether the reference is to a file, not to a module."""
        return self.file_or_module.endswith(".py")

    @property
    def path(self) -> Path:
        """Path of the file; a relative one is resolved against the spec's folder."""
        return self.folder / self.file_or_module

    def content(self) -> bytes:
        """Returns the file's text.

        Raises:
            SpecError: the file can't be read.
        """
        if self.text is not None:
            return self.text
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise SpecError(
                f"The {self.kind} file {self.path} can't be read: {error.strerror}",
                "spec",
                self.advice,
            ) from error


@dataclass(frozen=True)
class ModelReference(CodeReference):
    """Reference to the pandera.polars DataFrameModel of a table's rows."""

    kind, named = "schema", "class"
    advice = (
        "Give FILE.py:Class, relative to the spec, or package.module:Class, with a pandera.polars"
        " DataFrameModel."
    )

    def refuse_other(self, candidate: object) -> None:
        """Checks that an object is a pandera.polars DataFrameModel.

        Raises:
            SpecError: the object isn't one.
        """
        if isinstance(candidate, type) and issubclass(candidate, import_pandera().DataFrameModel):
            return
        subject, foreign_library = (
            f"{self.name} in {self.file_or_module}",
            _other_pandera(candidate),
        )
        if foreign_library is not None:
            raise SpecError(
                f"{subject} is a model of {foreign_library}",
                "spec",
                f"windrow takes models of pandera.polars: write {_IMPORTS}, and columns with"
                " polars' types, as in: amount: pl.Float64.",
            )
        raise SpecError(f"{subject} is not a pandera.polars DataFrameModel", "spec", self.advice)


@dataclass(frozen=True)
class FunctionReference(CodeReference):
    """Reference to a user's function."""

    kind, named = "function", "function"
    advice = "Give FILE.py:function, relative to the spec, or package.module:function."

    def refuse_other(self, candidate: object) -> None:
        """Checks that an object is a function.

        Raises:
            SpecError: the object isn't one.
        """
        if not callable(candidate):
            raise SpecError(
                f"{self.name} in {self.file_or_module} is no function", "spec", self.advice
            )


def load_model(model: ModelReference) -> type[Any]:
    """Loads a model once for each process, and again after its file changes.

    A module is imported only once.

    Raises:
        SpecError: the file, module or class doesn't exist; the class isn't a pandera.polars
            DataFrameModel; or its import failed.
    """
    loaded_model: type[Any] = _load(model)[1]
    return loaded_model


def load_function(function: FunctionReference) -> Callable[..., Any]:
    """Loads a function once for each process, and again after its file changes.

    Raises:
        SpecError: the file, module or function doesn't exist, or its import failed.
    """
    loaded_function: Callable[..., Any] = _load(function)[1]
    return loaded_function


def _load(code: ModelReference | FunctionReference) -> tuple[str, Any]:
    """Returns the digest of the code, and the object that it names."""
    digest = source_digest(code)
    with _LOADING:
        cached = _LOADED.get(code)
        if cached is None or cached[0] != digest:
            if isinstance(code, ModelReference):
                import_pandera()  # before the user's code imports it
            loaded = _resolve(code)
            code.refuse_other(loaded)
            cached = _LOADED[code] = (digest, loaded)
    return cached


def built_of_model(recipe: Hashable, model: ModelReference, build: Callable[[type[Any]], T]) -> T:
    """Returns the result of `build` for the model, from this thread's cache.

    Workers live longer than a run. So the result is built once for equal recipes, not for
    each split. It is built again after the model's file changes, so that a corrected schema
    counts.

    Args:
        recipe: the key of the cache.
        model: the model.
        build: makes the result for the loaded model.

    Raises:
        SpecError: the model can't be loaded.
    """
    built: dict[Hashable, tuple[str, T]] = _THREAD.__dict__.setdefault("built", {})
    digest, loaded_model = _load(model)
    cached = built.get(recipe)
    if cached is None or cached[0] != digest:
        cached = built[recipe] = (digest, build(loaded_model))
    return cached[1]


def import_pandera() -> ModuleType:
    """Imports `pandera.polars`, without its side effects if pyspark is installed.

    The first import sets two environment variables, which this function restores.
    SPARK_LOCAL_IP=127.0.0.1 would bind a cluster's driver to loopback, and
    PYARROW_IGNORE_TIMEZONE changes how pyspark converts timestamps. The import also imports
    pyspark.pandas, which takes a quarter of a second and nine megabytes. No Spark worker
    needs it, so this function prevents that in a worker.
    """
    names = ("SPARK_LOCAL_IP", "PYARROW_IGNORE_TIMEZONE")
    saved_environment = {name: os.environ.get(name) for name in names}
    unwanted = "pyspark.worker" in sys.modules and "pyspark.pandas" not in sys.modules
    modules: dict[str, Any] = sys.modules
    if unwanted:
        modules["pyspark.pandas"] = None  # imports of it fail as if it weren't installed
    try:
        return importlib.import_module("pandera.polars")
    finally:
        if unwanted:
            modules.pop("pyspark.pandas", None)  # another thread may have removed it already
        for name, value in saved_environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def source_digest(code: CodeReference) -> str:
    """Returns a key for caches of objects that are made from the code.

    It is the digest of the file's content, or the module's name.

    Raises:
        SpecError: the file can't be read.
    """
    return hashlib.sha256(code.content()).hexdigest() if code.is_file else code.file_or_module


def _resolve(code: CodeReference) -> Any:
    """Returns the object that the reference names. A file is loaded again at each call.

    Raises:
        SpecError: the object doesn't exist, or its import failed.
    """
    source, name = code.file_or_module, code.name
    if not source or not name:
        raise SpecError(
            f"The {code.kind} {code.reference!r} names no {code.named}", "spec", code.advice
        )
    with warnings.catch_warnings():  # `refuse_other` has an error for it
        warnings.filterwarnings("ignore", "Importing pandas-specific", FutureWarning)
        module = _from_file(code) if code.is_file else _from_module(code)
    if not hasattr(module, name):
        meant = "".join(f"Is {near} meant? " for near in get_close_matches(name, vars(module), 1))
        message = f"There is no {code.named} {name} in {source}, and the spec has {code.reference}"
        raise SpecError(f"{message} as a {code.kind}", "spec", f"{meant}{code.advice}")
    return getattr(module, name)


def _from_file(reference: CodeReference) -> ModuleType:
    path, code = reference.path, reference.content()
    module = ModuleType(
        f"_windrow_{reference.kind}_{hashlib.sha256(bytes(path.resolve()) + code).hexdigest()[:16]}"
    )
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # needed to resolve annotations
    try:
        # The user asked for this code to be loaded.
        exec(compile(code, str(path), "exec"), module.__dict__)  # noqa: S102
    except foreign_exceptions() as error:
        del sys.modules[module.__name__]
        raise _import_error(reference, str(path), error) from error
    return module


def _from_module(reference: CodeReference) -> ModuleType:
    try:
        return importlib.import_module(reference.file_or_module)
    except foreign_exceptions() as error:
        raise _import_error(reference, reference.file_or_module, error) from error


def _other_pandera(model: object) -> str | None:
    """Returns the pandera module of a model for another library than polars, else None."""
    kind = model if isinstance(model, type) else type(model)
    names = [base.__module__.split(".") for base in kind.__mro__]
    flavour = next(
        (
            name[2]
            for name in names
            if name[:2] == ["pandera", "api"] and name[2:3] not in ([], ["base"], ["dataframe"])
        ),
        None,
    )
    return None if flavour in {None, "polars"} else f"pandera.{flavour}"


def _import_error(reference: CodeReference, source: str, error: BaseException) -> SpecError:
    advice = "Fix it; nothing was read."
    if isinstance(error, ModuleNotFoundError):
        advice = f"Is {error.name} misspelt, or not installed where windrow is?"
        advice += f" (A file beside the {reference.kind} can't be imported; a package can.)"
    line = _line(source, error)
    return SpecError(
        f"The {reference.kind} {source} can't be imported: {type(error).__name__}: {error}"
        + ("" if line is None else f" ({line})"),
        "spec",
        advice,
    )


def _line(source: str, error: BaseException) -> str | None:
    """Returns FILE:LINE of an error.

    It is a line of the source, if the source is in the traceback; else the last line of the
    traceback outside importlib and this module.
    """
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "importlib" not in f.filename and f.filename != __file__
    ]
    user_frames = [f for f in frames if f.filename == source] or frames
    return f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else None
