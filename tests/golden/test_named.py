"""Names that users and plugins write: a change in `named/` needs a line in CHANGELOG.md."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter
from typer.main import get_command

import windrow
import windrow.dagster
import windrow.ingest.ports
import windrow.ingest.testing
from tests.docs.settings import Table, tables
from tests.golden.conftest import Golden
from tests.golden.described import named, public, resolved_schema
from tests.shape.sources import modules
from windrow.ingest import crashpoints
from windrow.ingest.cli.main import app
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.load import SharedSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.dataframes import options, sink
from windrow.ingest.dataframes.data_sources import WindrowKafka, WindrowSource
from windrow.ingest.formats import kind as formats
from windrow.ingest.formats.kinds import FORMATS
from windrow.ingest.lookups import kind as lookups
from windrow.ingest.lookups.kinds import SOURCES
from windrow.ingest.runner.outcome import ErrorData
from windrow.ingest.runner.task import SplitTask
from windrow.ingest.sinks import kind as sinks
from windrow.ingest.sinks.kinds import KINDS
from windrow.ingest.transform import kind as steps
from windrow.ingest.transform.kinds import STEPS

PRODUCT = ("ingest", "assets", "resources", "airflow/windrow_airflow")


def test_settings(golden: Golden) -> None:
    """Each setting of a spec, of windrow.yaml and of a DataFrame's write keeps its type
    and default.
    """
    for name, model, prefix in (
        ("spec", PipelineSpec, ""),
        ("windrow_yaml", ClusterSpec, "clusters.NAME"),
        ("write", sink.WriteSpec, ""),
    ):
        golden(f"named/{name}.txt", "".join(keys_of(tables(model, prefix))))
    assert [*SharedSpec.model_fields] == ["clusters", "secrets"]


def keys_of(sections: Iterable[Table]) -> Iterator[str]:
    """Yields a line for each setting of each section, with its types and its default."""
    for section in sections:
        yield f"{section.heading}\n"
        for name, field in section.settings():
            value = TypeAdapter(Annotated[field.annotation, *(field.metadata or [None])])
            schema = value.json_schema()
            schema_text = json.dumps(resolved_schema(schema, schema.get("$defs", {})))
            default = (
                "required" if field.is_required() else field.get_default(call_default_factory=True)
            )
            yield f"  {name}: {schema_text} {default!r}\n"


_QUOTED = re.compile(
    r"""["'](WINDROW_[A-Z_]+|windrow[._:/-](?!ingest\.|assets\.)[a-zA-Z0-9._:/-]+)["']"""
)


def test_names_with_windrow(golden: Golden) -> None:
    """Texts that begin with windrow's name stay.

    These are variables, properties, headers, tags, metrics, loggers, tables and groups of entry
    points.
    """
    texts = [path.read_text(encoding="utf-8") for path in modules(*PRODUCT)]
    golden("named/names.json", sorted({name for text in texts for name in _QUOTED.findall(text)}))


def test_the_public_names(golden: Golden) -> None:
    """The public names keep their fields, methods and arguments, and their modules.

    Pickles and stack traces contain the modules.
    """
    for face in (windrow, windrow.dagster):
        description_by_name = {}
        for name in face.__all__:
            value = getattr(face, name)
            origin = f"{value.__module__}:{value.__qualname__}" if callable(value) else "text"
            description_by_name[name] = {"from": origin, "is": named(value)}
        golden(f"named/{face.__name__}.json", description_by_name)


def modules_below(package: Any) -> list[str]:
    return sorted(
        module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    )


def test_ports(golden: Golden) -> None:
    """The interfaces for plugins keep their methods and arguments, and their values
    their fields.
    """
    names_by_module = {
        name: public(importlib.import_module(name)) for name in modules_below(windrow.ingest.ports)
    }
    golden("named/ports.json", names_by_module)


def test_sections_of_plugins(golden: Golden) -> None:
    """The sections that plugins subclass keep their methods, and the groups of entry
    points their names.
    """
    tables = {"formats": FORMATS, "lookups": SOURCES, "sinks": KINDS, "steps": STEPS}
    names_by_module = {
        module.__name__: public(module) for module in (formats, lookups, sinks, steps)
    }
    golden(
        "named/plugins.json",
        {"kinds": {k: sorted(v) for k, v in tables.items()}, **names_by_module},
    )


def test_doubles_and_suites(golden: Golden) -> None:
    """The test doubles and contract suites for plugins keep their names and methods."""
    names_by_module = {
        name: public(importlib.import_module(name))
        for name in modules_below(windrow.ingest.testing)
    }
    golden("named/testing.json", names_by_module)


def test_commands(golden: Golden) -> None:
    """Every command keeps its name, its arguments and its options."""
    golden("named/commands.json", options_of(get_command(app)))


def options_of(command: Any) -> Any:
    option_names = [
        " ".join([*parameter.opts, *parameter.secondary_opts]) for parameter in command.params
    ]
    below = getattr(command, "commands", {})
    return (
        {"": option_names} | {name: options_of(subcommand) for name, subcommand in below.items()}
        if below
        else option_names
    )


def test_options_of_dataframes(golden: Golden) -> None:
    """Spark's data sources keep their names, options and columns."""
    sources = {"sources": [WindrowSource.name(), WindrowKafka.name()], "columns": sink.METADATA}
    golden("named/dataframes.json", {**sources, "options": public(options)})


def test_crash_points(golden: Golden) -> None:
    """The crash points keep their names, because plugins' tests use them."""
    kinds = get_args(crashpoints.CrashPoint)
    golden("named/crash_points.json", [name for kind in kinds for name in get_args(kind) or [kind]])


def test_what_tasks_get(golden: Golden) -> None:
    """The pickled input of a Spark task, and its error, keep their fields."""
    golden("named/tasks.json", {kind.__name__: named(kind) for kind in (SplitTask, ErrorData)})
