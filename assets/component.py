"""The component: a pipeline in a YAML file, which the command `windrow` reads too.

`dg scaffold defs windrow.dagster.KafkaTable NAME` writes the files. If a topic is named, it
does what `windrow infer` does, else what `windrow init` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import click
import dagster as dg
from pydantic import BaseModel, Field, RootModel

from windrow.assets.dagster_internals import SCAFFOLDER_WARNING
from windrow.assets.factory import kafka_table
from windrow.assets.names import dead_letters_key, identifier, kafka_key, table_key
from windrow.assets.yamlschema import as_written
from windrow.ingest.assemble import connect
from windrow.ingest.config.load import load_specs, parse_specs
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.infer.new_pipeline import PLACEHOLDER, infer, template
from windrow.ingest.infer.request import DEFAULT_BOOTSTRAP, SAMPLED_MESSAGES, PipelineRequest


class NewPipeline(BaseModel):
    """The options of `dg scaffold defs`."""

    topic: str | None = Field(
        default=None,
        description=(
            "The topic; format and columns are inferred from its messages. Left out: a template."
        ),
    )
    bootstrap: str | None = Field(
        default=None, description=f"The cluster, HOST:PORT. Left out: {DEFAULT_BOOTSTRAP}."
    )
    cluster: str | None = Field(
        default=None, description="In its place, the cluster's name in a windrow.yaml."
    )


class PipelineScaffolder(dg.Scaffolder[NewPipeline]):
    """Writes defs.yaml and schema.py: inferred from a topic if one is named, else a template."""

    @classmethod
    def get_scaffold_params(cls) -> type[NewPipeline]:
        """Returns the class of the options."""
        return NewPipeline

    def scaffold(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        """Writes both files into the component's folder, whose name is the pipeline's id.

        Raises:
            ClickException: `ingest.infer.new_pipeline` refuses the request. dg shows the
                message without a stack trace.
        """
        try:
            self._begin(request)
        except WindrowError as error:
            with suppress(OSError):
                # dg made the folder, and would take an empty folder for a component
                request.target_path.rmdir()
            raise click.ClickException(str(error)) from None

    def _begin(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        if request.scaffold_format != "yaml":
            raise SpecError("A pipeline is a YAML file", "spec", "Leave --format out.")
        options, folder, now = request.params, request.target_path, datetime.now(UTC)
        pipeline_request = PipelineRequest(
            options.topic or PLACEHOLDER,
            options.bootstrap or DEFAULT_BOOTSTRAP,
            options.cluster,
            id=folder.name,
        )
        if options.topic is None:
            template(folder, pipeline_request, now)
        else:
            inferred = infer(folder, pipeline_request, SAMPLED_MESSAGES, connect, now)
            click.echo("\n".join(inferred.describe(pipeline_request.topic)))


# --------------------------------------------------------------------------------------------------


FILE = "defs.yaml"

warnings.filterwarnings("ignore", SCAFFOLDER_WARNING, dg.PreviewWarning)


class Attributes(RootModel[dict[str, Any]]):
    """A spec before its templates are resolved.

    Its JSON schema is that of the spec. Editors and `dg check yaml` use it.
    """

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns the JSON schema of a spec as it is written, without `folder`."""
        schema = PipelineSpec.model_json_schema(*args, **kwargs)
        del schema["properties"]["folder"]
        schema["required"].remove("folder")
        # editors show the first sentence, without the example in Python
        return {**as_written(schema), "description": schema["description"].partition("\n\n")[0]}


@dg.scaffold_with(PipelineScaffolder)
class KafkaTable(dg.Component):
    """A Kafka topic becomes a table, one bounded window at a time, exactly once.

    Example:
        import dagster as dg
        from windrow.dagster import KafkaTable

        class BankTable(KafkaTable):
            def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
                made = super().get_asset_spec(spec)
                return made.merge_attributes(metadata={"runbook": "https://wiki.example/payments"})
    """

    def __init__(self, *specs: PipelineSpec) -> None:
        """Makes a component from the specs of a file: one, or one for each topic (`for_each`)."""
        self.specs = specs

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Returns the model of `attributes`."""
        return Attributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Returns the component's description, which lists of components show."""
        return dg.ComponentTypeSpec(description=(cls.__doc__ or "").partition("\n\n")[0])

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Loads the spec as the command `windrow` does: the same file, templates and messages.

        Raises:
            SpecError: the spec has mistakes. The message has all of them, each with its
                line.
        """
        tree = context.resolution_context.source_position_tree
        file = None if tree is None else Path(tree.position.filename)
        if file is not None and file.is_file():
            # Dagster allows several YAML documents in one file
            number = context.component_path.instance_key
            return cls(*load_specs(file, number if isinstance(number, int) else 0))
        raw = attributes.root if isinstance(attributes, Attributes) else {}
        return cls(*parse_specs(raw, context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Makes the definitions of the file's pipelines.

        Raises:
            SpecError: another pipeline of the code location has the same names in Dagster.
        """
        _refuse_conflicts(tuple(context.component_tree.get_all_components(KafkaTable)))
        tables = [kafka_table(spec, get_asset_spec=self.get_asset_spec) for spec in self.specs]
        return dg.Definitions.merge(*tables)

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Returns the asset spec of the table or of its dead letters.

        A subclass can change what the spec's section `dagster` has no settings for, such as
        metadata.
        """
        return spec


@lru_cache(maxsize=1)  # each pipeline of a code location calls it with the same components
def _refuse_conflicts(components: tuple[KafkaTable, ...]) -> None:
    specs = [spec for component in components for spec in component.specs]
    refuse_alike(specs)
    refuse_two_clusters(specs)


def refuse_alike(specs: Iterable[PipelineSpec]) -> None:
    """Refuses ids and asset keys that Dagster can't tell apart.

    Raises:
        SpecError: two pipelines of the code location have such ids or keys. The message
            names both and their files.
    """
    spec_by_name = dict[str, PipelineSpec]()
    for spec in specs:
        names, file = _names(spec), _path(spec)
        for name in filter(spec_by_name.__contains__, names):
            other_names, other_file = _names(spec_by_name[name]), _path(spec_by_name[name])
            clash = (
                f"have one {names[name]}"
                if names[name] == other_names[name]
                else (
                    f"have the {names[name]} and the {other_names[name]}, which Dagster can't"
                    f" tell apart: both are {name}"
                )
            )
            keys = [
                f
                for f, n in ((file, names), (other_file, other_names))
                if n[name].startswith("asset")
            ]
            remedy = f"{min(keys)} another dagster.key" if keys else "one of them another id"
            first, second = sorted(map(str, (file, other_file)))
            raise SpecError(
                f"{first} and {second} {clash}",
                "spec",
                f"Give {remedy}, or a code location of its own.",
            )
        spec_by_name |= dict.fromkeys(names, spec)


def _path(spec: PipelineSpec) -> Path:
    return spec.spec_path or spec.folder / FILE


def _names(spec: PipelineSpec) -> dict[str, str]:
    """Returns the names that a pipeline uses in Dagster, each with its id or asset key."""
    keys = table_key(spec), dead_letters_key(spec)
    ids = {identifier(spec.id): f"id {spec.id}"}
    assets = {identifier("__".join(key.path)): f"asset {key.to_user_string()}" for key in keys}
    # ids come first, because another asset key doesn't help if the ids are alike
    return {**ids, **assets, **ids}


def refuse_two_clusters(specs: Iterable[PipelineSpec]) -> None:
    """Refuses one cluster name for two clusters in one code location.

    Two windrow.yaml files may give the name to different clusters. Both would have the same
    resource key in Dagster.

    Raises:
        SpecError: a name is used for two clusters; the message names the cluster and both
            files.
    """
    spec_by_key = dict[str, PipelineSpec]()
    for spec in specs:
        first_spec = spec_by_key.setdefault(kafka_key(spec), spec)
        if first_spec.named_cluster == spec.named_cluster:
            continue
        first, second = sorted(str(_path(pipeline)) for pipeline in (spec, first_spec))
        raise SpecError(
            f"{first} and {second} read from a cluster called {spec.source.cluster}, which is"
            " another one in each of them, and Dagster has one resource of that name",
            "spec",
            "Define the cluster in one windrow.yaml above both, or give the two clusters two"
            " names.",
        )
