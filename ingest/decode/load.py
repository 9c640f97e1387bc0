"""A schema reference -> the DataFrameModel it names: `file.py:Class`, relative to the spec's folder, or `package.module:Class`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ingest.errors import SpecError

_DO = "Give FILE.py:Class, relative to the spec, or package.module:Class, with a pandera.polars DataFrameModel."


def load_model(reference: str, folder: Path) -> type[Any]:
    """The model. A file is read anew at each call, so that a mended schema counts; a module is imported as Python does it, once.

    Raises:
        SpecError: no such file, module or class; it isn't a pandera.polars DataFrameModel; or importing it failed, with the exception's
            type and text.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise SpecError(f"The schema {reference!r} names no class", "spec", _DO)
    base = import_pandera().DataFrameModel
    module = _from_file(folder / place) if place.endswith(".py") else _from_module(place)
    if not hasattr(module, name):
        raise SpecError(f"There is no class {name} in {place}", "spec", _DO)
    model = getattr(module, name)
    if not (isinstance(model, type) and issubclass(model, base)):
        raise SpecError(f"{name} in {place} is not a pandera.polars DataFrameModel", "spec", _DO)
    return model


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


def source_digest(reference: str, folder: Path) -> str:
    """What a cache of things made from the model must be keyed by: the file's content, or the module's name.

    Raises:
        SpecError: if the file can't be read.
    """
    place = reference.rpartition(":")[0]
    return hashlib.sha256(_read(folder / place)).hexdigest() if place.endswith(".py") else place


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SpecError(f"The schema file {path} can't be read: {error.strerror}", "spec", _DO) from error


def _from_file(path: Path) -> ModuleType:
    code = _read(path)
    module = ModuleType(f"_windrow_schema_{hashlib.sha256(bytes(path.resolve()) + code).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # annotations are resolved through it
    try:
        exec(compile(code, str(path), "exec"), module.__dict__)  # noqa: S102  # the user's own schema: loading it is the point
    except Exception as error:
        del sys.modules[module.__name__]
        raise _failed(str(path), error) from error
    return module


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _failed(name, error) from error


def _failed(place: str, error: Exception) -> SpecError:
    return SpecError(f"The schema {place} can't be imported: {type(error).__name__}: {error}", "spec", "Mend it; nothing was read.")
