"""Loading: a reference becomes a model, or says why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.decode.load import load_model, source_digest
from ingest.errors import SpecError

MODEL = """
from __future__ import annotations
import pandera.polars as pp
import polars as pl
class M(pp.DataFrameModel):
    x: pl.Int64
class N: pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with model.py."""
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def test_a_file_relative_to_the_folder(folder: Path) -> None:
    """`file.py:Class`, with postponed annotations resolved."""
    assert list(load_model("model.py:M", folder).to_schema().columns) == ["x"]


def test_a_module() -> None:
    """`package.module:Class`, by Python's own import."""
    assert load_model("tests.decode.models:Nested", Path("/")).__name__ == "Nested"


def test_a_mended_file_counts_at_once(folder: Path) -> None:
    """A long-lived worker reads the file, not its memory."""
    before = source_digest("model.py:M", folder)
    load_model("model.py:M", folder)
    (folder / "model.py").write_text(MODEL.replace("x:", "y:"))
    assert list(load_model("model.py:M", folder).to_schema().columns) == ["y"]
    assert source_digest("model.py:M", folder) != before


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("none.py:M", "can't be read: No such file"), ("model.py:X", "no class X"), ("model.py:N", "not a pandera.polars DataFrameModel"),
        ("model.py:pl", "not a pandera.polars DataFrameModel"), ("no.such.module:M", "ModuleNotFoundError"), ("model.py", "names no class"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(folder: Path, reference: str, said: str) -> None:
    """Each way to be wrong has its own sentence."""
    with pytest.raises(SpecError, match=said):
        load_model(reference, folder)


def test_an_import_error_shows_type_and_text(folder: Path) -> None:
    """The user's own exception, in one line, and no half-made module stays behind."""
    (folder / "bad.py").write_text("raise KeyError('gone')\n")
    with pytest.raises(SpecError, match="KeyError: 'gone'"):
        load_model("bad.py:M", folder)
    (folder / "worse.py").write_text("def (:\n")
    with pytest.raises(SpecError, match="SyntaxError"):
        load_model("worse.py:M", folder)


def test_loading_leaves_the_environment_alone() -> None:
    """pandera's first import sets two variables that Spark reads; ours takes them back."""
    code = (
        "import os; before = dict(os.environ)\n"
        "from pathlib import Path; from ingest.decode.load import load_model\n"
        "load_model('tests.decode.models:Nested', Path('/'))\n"
        "for name in ('SPARK_LOCAL_IP', 'PYARROW_IGNORE_TIMEZONE'): assert os.environ.get(name) == before.get(name), name\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in {"SPARK_LOCAL_IP", "PYARROW_IGNORE_TIMEZONE"}}
    subprocess.run([sys.executable, "-c", code],
                   check=True, env=environment, cwd=Path(__file__).parents[2])  # fmt: skip
