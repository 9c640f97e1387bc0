"""A reference becomes a model, or an error that says why it can't."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.user_code import ModelReference, load_model, source_digest

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
    """`file.py:Class` is loaded relative to the folder, with postponed annotations resolved."""
    assert list(load_model(ModelReference("model.py:M", folder)).to_schema().columns) == ["x"]


def test_a_module() -> None:
    """`package.module:Class` is loaded by Python's import."""
    assert (
        load_model(ModelReference("tests.formats.json.models:Nested", Path("/"))).__name__
        == "Nested"
    )


def test_a_corrected_file_counts_at_once(folder: Path) -> None:
    """A corrected file is loaded again in a long-lived worker."""
    old_digest = source_digest(ModelReference("model.py:M", folder))
    load_model(ModelReference("model.py:M", folder))
    (folder / "model.py").write_text(MODEL.replace("x:", "y:"))
    assert list(load_model(ModelReference("model.py:M", folder)).to_schema().columns) == ["y"]
    assert source_digest(ModelReference("model.py:M", folder)) != old_digest


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("none.py:M", "can't be read: No such file"),
        ("model.py:X", r"no class X in model.py, and the spec has model.py:X as a schema\. Give"),
        ("model.py:MM", r"and the spec has model.py:MM as a schema\. Is M meant\?"),
        ("model.py:N", "not a pandera.polars DataFrameModel"),
        ("model.py:pl", "not a pandera.polars DataFrameModel"),
        ("no.such.module:M", "ModuleNotFoundError"),
        ("model.py", "names no class"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, reference: str, message: str) -> None:
    """Each kind of wrong reference has its own error."""
    with pytest.raises(SpecError, match=message):
        load_model(ModelReference(reference, folder))


def test_an_import_error_shows_type_and_text(folder: Path) -> None:
    """An exception during the import is shown in one line, and no partial module is left."""
    (folder / "bad.py").write_text("raise KeyError('gone')\n")
    with pytest.raises(SpecError, match="KeyError: 'gone'"):
        load_model(ModelReference("bad.py:M", folder))
    (folder / "worse.py").write_text("def (:\n")
    with pytest.raises(SpecError, match="SyntaxError"):
        load_model(ModelReference("worse.py:M", folder))


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        (
            "import polars as pl\nimport polarz\n",
            2,
            "ModuleNotFoundError: No module named 'polarz' (",
        ),
        ("\nfrom polars import Int46\n", 2, "cannot import name 'Int46'"),
        (
            (
                "import pandera.polars as pa\nimport polars as pl\nclass M(pa.DataFrameModel):\n   "
                " x: pl.Int46\n"
            ),
            3,
            "module 'polars' has no attribute 'Int46'",
        ),
        ("\ndef (:\n", 2, "SyntaxError"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
    ],
)
def test_an_import_error_shows_its_line(folder: Path, code: str, line: int, message: str) -> None:
    """The error of a failed import has the file and line in the model's own file.

    This holds even if the file would end the process.
    """
    (folder / "bad.py").write_text(code)
    with pytest.raises(SpecError) as excinfo:
        load_model(ModelReference("bad.py:M", folder))
    assert message in excinfo.value.message
    assert excinfo.value.message.endswith(f"({folder / 'bad.py'}:{line})")


def test_a_module_that_is_missing_is_named() -> None:
    """A missing module raises SpecError with its name and the advice."""
    with pytest.raises(SpecError, match="Is absent misspelt, or not installed"):
        load_model(ModelReference("absent.module:M", Path("/")))


@pytest.mark.parametrize("flavour", ["pandas"])
@pytest.mark.parametrize("named", ["DataFrameModel", "DataFrameSchema"])
def test_a_model_of_another_pandera_says_how_to_change(
    folder: Path, flavour: str, named: str
) -> None:
    """A model of pandera.pandas raises SpecError with the change that is needed."""
    model_code = (
        "class M(pa.DataFrameModel): pass"
        if named == "DataFrameModel"
        else "M = pa.DataFrameSchema({})"
    )
    (folder / "other.py").write_text(f"import pandera.{flavour} as pa\n{model_code}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(SpecError, match=f"is a model of pandera.{flavour}") as excinfo:
            load_model(ModelReference("other.py:M", folder))
    assert "import pandera.polars as pa" in excinfo.value.advice


def test_panderas_old_import_brings_no_warning(folder: Path) -> None:
    """`import pandera as pa` causes only windrow's error, without pandera's own long warning."""
    (folder / "old.py").write_text("import pandera as pa\nclass M(pa.DataFrameModel): pass\n")
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", FutureWarning)
        with pytest.raises(SpecError, match=r"is a model of pandera\.pandas"):
            load_model(ModelReference("old.py:M", folder))
    assert not [warning for warning in caught_warnings if "pandera" in str(warning.message)]


@pytest.mark.slow
def test_loading_leaves_the_environment_alone() -> None:
    """Loading a model changes no environment variable.

    pandera's first import sets two variables that Spark reads, and windrow resets them.
    """
    code = (
        "import os; before = dict(os.environ)\nfrom pathlib import Path; from"
        " windrow.ingest.schema.user_code import ModelReference,"
        " load_model\nload_model(ModelReference('tests.formats.json.models:Nested',"
        " Path('/')))\nfor name in ('SPARK_LOCAL_IP', 'PYARROW_IGNORE_TIMEZONE'): assert"
        " os.environ.get(name) == before.get(name), name\n"
    )
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in {"SPARK_LOCAL_IP", "PYARROW_IGNORE_TIMEZONE"}
    }
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=120,
    )
