"""A schema reference -> the DataFrameModel it names: `file.py:Class`, relative to the spec's folder, or `package.module:Class`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ingest.errors import SpecError

T = TypeVar("T")

_IMPORTS = "`import pandera.polars as pa` and `import polars as pl`"
_MODELS: dict[ModelReference, tuple[str, type[Any]]] = {}
_LOADING = threading.Lock()
_THREAD = threading.local()
_DO = "Give FILE.py:Class, relative to the spec, or package.module:Class, with a pandera.polars DataFrameModel."


@dataclass(frozen=True)
class ModelReference:
    """Which model: `FILE.py:Class`, relative to `folder`, or `package.module:Class`.

    Pickled, it takes the file's text along as it is then: a worker may be on a machine that has no such file, and all tasks of a run go by
    one text. A module isn't taken along: it must be installed where the tasks run.
    """

    reference: str
    folder: Path
    text: bytes | None = field(default=None, compare=False, repr=False)
    """The file's, as it was taken along; None: it is read when it is asked for."""

    def __str__(self) -> str:
        """The reference as it is written."""
        return self.reference

    def __reduce__(self) -> tuple[Any, ...]:
        """With its text.

        Raises:
            SpecError: the file can't be read.
        """
        return ModelReference, (self.reference, self.folder, self.content() if self.is_file else None)

    @property
    def place(self) -> str:
        """The file or the module."""
        return self.reference.rpartition(":")[0]

    @property
    def is_file(self) -> bool:
        """Whether it is a file, and no module."""
        return self.place.endswith(".py")

    @property
    def path(self) -> Path:
        """The file, where the spec is."""
        return self.folder / self.place

    def content(self) -> bytes:
        """The file's text.

        Raises:
            SpecError: it can't be read.
        """
        if self.text is not None:
            return self.text
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise SpecError(f"The schema file {self.path} can't be read: {error.strerror}", "spec", _DO) from error


def load_model(model: ModelReference) -> type[Any]:
    """The model. A file is read anew at each call, so that a mended schema counts; a module is imported as Python does it, once.

    Raises:
        SpecError: no such file, module or class; it isn't a pandera.polars DataFrameModel; or importing it failed, with the exception's
            type and text.
    """
    place, _, name = model.reference.rpartition(":")
    if not place or not name:
        raise SpecError(f"The schema {model.reference!r} names no class", "spec", _DO)
    base = import_pandera().DataFrameModel
    module = _from_file(model) if model.is_file else _from_module(place)
    if not hasattr(module, name):
        raise SpecError(f"There is no class {name} in {place}", "spec", _DO)
    found = getattr(module, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        other = _other_pandera(found)
        if other is not None:
            do = f"windrow takes models of pandera.polars: write {_IMPORTS}, and columns with polars' types, as in: amount: pl.Float64."
            raise SpecError(f"{name} in {place} is a model of {other}", "spec", do)
        raise SpecError(f"{name} in {place} is not a pandera.polars DataFrameModel", "spec", _DO)
    return found


def model_now(model: ModelReference) -> tuple[str, type[Any]]:
    """The model as it is now, and the digest of its source: loaded once per process, and again when its text changed.

    Raises:
        SpecError: as `load_model`.
    """
    digest = source_digest(model)
    with _LOADING:
        known = _MODELS.get(model)
        if known is None or known[0] != digest:
            known = _MODELS[model] = (digest, load_model(model))
    return known


def built_of_model(recipe: Hashable, model: ModelReference, build: Callable[[type[Any]], T]) -> T:
    """What `build` makes of the model, for this thread: once for equal recipes, and again when the model's text changed.

    Workers live on between runs: without the first, each split would build it anew; without the second, a mended schema wouldn't count.

    Raises:
        SpecError: as `load_model`.
    """
    built: dict[Hashable, tuple[str, T]] = _THREAD.__dict__.setdefault("built", {})
    digest, found = model_now(model)
    known = built.get(recipe)
    if known is None or known[0] != digest:
        known = built[recipe] = (digest, build(found))
    return known[1]


def import_pandera() -> ModuleType:
    """`pandera.polars`, without its side effect: where pandas and pyspark are installed its first import sets two environment variables.

    SPARK_LOCAL_IP=127.0.0.1 would bind a cluster's driver to loopback, PYARROW_IGNORE_TIMEZONE changes what pyspark does with timestamps.
    """
    names = ("SPARK_LOCAL_IP", "PYARROW_IGNORE_TIMEZONE")
    before = {name: os.environ.get(name) for name in names}
    try:
        return importlib.import_module("pandera.polars")
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def source_digest(model: ModelReference) -> str:
    """What a cache of things made from the model must be keyed by: the file's content, or the module's name.

    Raises:
        SpecError: if the file can't be read.
    """
    return hashlib.sha256(model.content()).hexdigest() if model.is_file else model.place


def _from_file(model: ModelReference) -> ModuleType:
    path, code = model.path, model.content()
    module = ModuleType(f"_windrow_schema_{hashlib.sha256(bytes(path.resolve()) + code).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # annotations are resolved through it
    try:
        exec(compile(code, str(path), "exec"), module.__dict__)  # noqa: S102  # the user's own schema: loading it is the point
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _failed(str(path), error) from error
    return module


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _other_pandera(model: object) -> str | None:
    """The flavour of pandera that a model or schema is of, where it isn't polars'."""
    kind = model if isinstance(model, type) else type(model)
    names = [base.__module__.split(".") for base in kind.__mro__]
    flavour = next((name[2] for name in names if name[:2] == ["pandera", "api"] and name[2:3] not in ([], ["base"], ["dataframe"])), None)
    return None if flavour in {None, "polars"} else f"pandera.{flavour}"


def _failed(place: str, error: BaseException) -> SpecError:
    do = "Mend it; nothing was read."
    if isinstance(error, ModuleNotFoundError):
        do = f"Is {error.name} misspelt, or not installed where windrow is? (A file beside the schema can't be imported; a package can.)"
    line = _line(place, error)
    what = f"The schema {place} can't be imported: {type(error).__name__}: {error}" + ("" if line is None else f" ({line})")
    return SpecError(what, "spec", do)


def _line(place: str, error: BaseException) -> str | None:
    """FILE:LINE in the schema itself, where the error came through it; else in what it imports."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.filename != __file__]
    found = [f for f in frames if f.filename == place] or frames
    return f"{found[-1].filename}:{found[-1].lineno}" if found else None
