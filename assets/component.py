"""The component: a pipeline in a YAML file, which the command reads too."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, RootModel

from windrow.assets.factory import kafka_table
from windrow.assets.names import identifier, kafka_key
from windrow.assets.scaffold import PipelineScaffolder
from windrow.assets.yamlschema import as_written
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError

FILE = "defs.yaml"

# Each `dg` command warns about this class of dagster-spark, which comes with
# dagster-pyspark.
warnings.filterwarnings("ignore", "Class `SparkDeclarativePipelineScaffolder`", dg.PreviewWarning)


class Attributes(RootModel[dict[str, Any]]):
    """A spec before its templates are resolved.

    Its JSON schema is the spec's, for editors and `dg check yaml`.
    """

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The JSON schema of a spec as it is written, without `folder`."""
        schema = PipelineSpec.model_json_schema(*args, **kwargs)
        del schema["properties"]["folder"]
        schema["required"].remove("folder")
        return as_written(schema)


@dg.scaffold_with(PipelineScaffolder)
class KafkaTable(dg.Component):
    """A Kafka topic becomes a table, one bounded window at a time, exactly once."""

    def __init__(self, spec: PipelineSpec) -> None:
        """Makes a component of a spec."""
        self.spec = spec

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The model of `attributes`."""
        return Attributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """The component's description, for lists."""
        return dg.ComponentTypeSpec(
            description=cls.__doc__,
            produces=["asset", "asset_check", "job", "schedule", "resource"],
        )

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Loads the spec as the command does: the same file, templates and messages.

        Raises:
            SpecError: with all mistakes at once, each with its line.
        """
        tree = context.resolution_context.source_position_tree
        file = None if tree is None else Path(tree.position.filename)
        if file is not None and file.is_file():
            # Dagster takes several YAML documents in one file
            number = context.component_path.instance_key
            return cls(load_spec(file, number if isinstance(number, int) else 0))
        raw = attributes.root if isinstance(attributes, Attributes) else {}
        return cls(parse_spec(raw, context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Makes the pipeline's definitions.

        Raises:
            SpecError: another pipeline of the code location would have the same names in Dagster.
        """
        others = [
            c.spec for c in context.component_tree.get_all_components(KafkaTable) if c is not self
        ]
        refuse_alike(self.spec, others)
        refuse_two_clusters(self.spec, others)
        return kafka_table(self.spec)


def refuse_alike(spec: PipelineSpec, others: Iterable[PipelineSpec]) -> None:
    """Refuses an id that Dagster can't tell from another one of the code location.

    Raises:
        SpecError: there is such an id; the message names both ids and both files.
    """
    name = identifier(spec.id)
    other = next((o for o in others if identifier(o.id) == name), None)
    if other is None:
        return
    what = (
        f"have one id, {spec.id}"
        if spec.id == other.id
        else (
            f"have the ids {spec.id} and {other.id}, which Dagster can't tell apart: both are"
            f" {name}"
        )
    )
    one, two = sorted(str(each.folder / FILE) for each in (spec, other))
    raise SpecError(
        f"{one} and {two} {what}",
        "spec",
        "Give one of them another id, or a code location of its own.",
    )


def refuse_two_clusters(spec: PipelineSpec, others: Iterable[PipelineSpec]) -> None:
    """Refuses one name for two clusters in one code location.

    Two windrow.yaml files may give the name to different clusters, which would have one
    key in Dagster.

    Raises:
        SpecError: there are two; the message names the cluster and both files.
    """
    other = next(
        (
            o
            for o in others
            if kafka_key(o) == kafka_key(spec) and o.named_cluster != spec.named_cluster
        ),
        None,
    )
    if other is not None:
        one, two = sorted(str(each.folder / FILE) for each in (spec, other))
        what = (
            f"{one} and {two} read from a cluster called {spec.source.cluster}, which is another"
            " one in each of them, and Dagster has one resource of that name"
        )
        raise SpecError(
            what,
            "spec",
            "Define the cluster in one windrow.yaml above both, or give the two clusters two"
            " names.",
        )
