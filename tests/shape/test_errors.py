"""Errors travel: from a Spark worker to the driver as data, between processes as pickles."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import ingest
from ingest import errors
from ingest.cli.main import app
from ingest.engine.spark import _Failure
from ingest.model.codec import from_json, to_json


def _kinds() -> list[type[errors.WindrowError]]:
    """Every error there is, wherever in ingest it is defined."""
    for module in pkgutil.walk_packages(ingest.__path__, "ingest."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = [errors.WindrowError]
    for kind in found:
        found += [k for k in kind.__subclasses__() if k not in found and k.__module__.startswith("ingest.")]
    return found


KINDS = _kinds()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_comes_back_from_a_worker(kind: type[errors.WindrowError]) -> None:
    """What a Spark task brings back as data is raised as the same error."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = from_json(to_json(_Failure.of(error)), _Failure).error()
    assert type(back) is kind
    assert (vars(back), str(back)) == (vars(error), str(error))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_survives_pickling(kind: type[errors.WindrowError]) -> None:
    """An error comes back of the same class, with all its fields and the same paragraph."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (vars(back), str(back), back.exit_code) == (vars(error), str(error), kind.exit_code)


def test_error_names_its_place() -> None:
    """The paragraph says where it happened."""
    assert "shop.orders[3]@42" in str(errors.RefusedError("gone", "read", "Look.", "shop.orders", 3, 42))


@pytest.mark.parametrize("path", sorted(Path(ingest.__path__[0]).rglob("*.py")), ids=lambda path: path.stem)
def test_no_error_advises_what_is_not_there(path: Path) -> None:
    """Every command that a text sends a person to is one."""
    advised = set(re.findall(r"windrow (\w+) SPEC", path.read_text(encoding="utf-8")))
    assert advised <= {(c.name or getattr(c.callback, "__name__", "")) for c in app.registered_commands}


def test_exit_codes_are_the_documented_ones() -> None:
    """Each error ends the command with 1 refused, 2 bad spec, 3 unreachable or 4 not yet closed; every one of these is in use."""
    assert {kind.exit_code for kind in KINDS} == {1, 2, 3, 4}
