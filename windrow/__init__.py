"""Kafka topics become tables, one bounded window at a time, exactly once.

The names in `__all__` are windrow's public names, which need no Dagster; `docs/python.md`
shows how to use them. Everything else below `windrow` may change from one version to the
next without notice, except `windrow.dagster` and `windrow.ingest.testing`.

A name is imported when it is first used. So `import windrow` takes no time, and a program
that only reads a spec imports neither Kafka's client nor Spark. No public name equals the
name of a module of `windrow`, because an import of that module would replace it.
"""

TYPE_CHECKING = False
"""True for type checkers only.

`typing` has the same constant, but its import takes longer than that of this module.
"""

if TYPE_CHECKING:
    from windrow.ingest.admin.chosen_dead_letters import Chosen
    from windrow.ingest.admin.dead_replay import (
        DeadReplayRequest,
        DeadReplayResult,
        replay_dead_letters,
    )
    from windrow.ingest.admin.edit_function import RefusedMessage
    from windrow.ingest.admin.receipts import read_receipts
    from windrow.ingest.assemble import assemble as open_pipeline
    from windrow.ingest.config.load import load_spec, load_specs
    from windrow.ingest.config.pipeline import PipelineSpec, windows_named
    from windrow.ingest.dataframes.data_sources import WindrowKafka, WindrowSource
    from windrow.ingest.errors import (
        BugError,
        NotClosedError,
        RefusedError,
        SpecError,
        UnreachableError,
        WindrowError,
    )
    from windrow.ingest.model.plan import Plan, Window
    from windrow.ingest.model.receipt import Committed, Receipt
    from windrow.ingest.runner.context import PassedOver, Pipeline, Request, Result
    from windrow.ingest.runner.micro_batches import run_batches
    from windrow.ingest.runner.run_windows import pass_over_refused, run_windows
    from windrow.ingest.runner.run_windows import preview as preview_window
    from windrow.ingest.runner.run_windows import run as run_window

_HOMES = {
    "BugError": "windrow.ingest.errors:BugError",
    "Chosen": "windrow.ingest.admin.chosen_dead_letters:Chosen",
    "Committed": "windrow.ingest.model.receipt:Committed",
    "DeadReplayRequest": "windrow.ingest.admin.dead_replay:DeadReplayRequest",
    "DeadReplayResult": "windrow.ingest.admin.dead_replay:DeadReplayResult",
    "NotClosedError": "windrow.ingest.errors:NotClosedError",
    "PassedOver": "windrow.ingest.runner.context:PassedOver",
    "Pipeline": "windrow.ingest.runner.context:Pipeline",
    "PipelineSpec": "windrow.ingest.config.pipeline:PipelineSpec",
    "Plan": "windrow.ingest.model.plan:Plan",
    "Receipt": "windrow.ingest.model.receipt:Receipt",
    "RefusedError": "windrow.ingest.errors:RefusedError",
    "RefusedMessage": "windrow.ingest.admin.edit_function:RefusedMessage",
    "Request": "windrow.ingest.runner.context:Request",
    "Result": "windrow.ingest.runner.context:Result",
    "SpecError": "windrow.ingest.errors:SpecError",
    "UnreachableError": "windrow.ingest.errors:UnreachableError",
    "Window": "windrow.ingest.model.plan:Window",
    "WindrowError": "windrow.ingest.errors:WindrowError",
    "WindrowKafka": "windrow.ingest.dataframes.data_sources:WindrowKafka",
    "WindrowSource": "windrow.ingest.dataframes.data_sources:WindrowSource",
    "load_spec": "windrow.ingest.config.load:load_spec",
    "load_specs": "windrow.ingest.config.load:load_specs",
    "replay_dead_letters": "windrow.ingest.admin.dead_replay:replay_dead_letters",
    "open_pipeline": "windrow.ingest.assemble:assemble",
    "pass_over_refused": "windrow.ingest.runner.run_windows:pass_over_refused",
    "preview_window": "windrow.ingest.runner.run_windows:preview",
    "read_receipts": "windrow.ingest.admin.receipts:read_receipts",
    "run_batches": "windrow.ingest.runner.micro_batches:run_batches",
    "run_window": "windrow.ingest.runner.run_windows:run",
    "run_windows": "windrow.ingest.runner.run_windows:run_windows",
    "windows_named": "windrow.ingest.config.pipeline:windows_named",
}
"""The module of each public name, and its name in that module.

`tests/shape/test_face.py` compares it with the imports above.
"""

__all__ = [
    "BugError",
    "Chosen",
    "Committed",
    "DeadReplayRequest",
    "DeadReplayResult",
    "NotClosedError",
    "PassedOver",
    "Pipeline",
    "PipelineSpec",
    "Plan",
    "Receipt",
    "RefusedError",
    "RefusedMessage",
    "Request",
    "Result",
    "SpecError",
    "UnreachableError",
    "Window",
    "WindrowError",
    "WindrowKafka",
    "WindrowSource",
    "load_spec",
    "load_specs",
    "open_pipeline",
    "pass_over_refused",
    "preview_window",
    "read_receipts",
    "replay_dead_letters",
    "run_batches",
    "run_window",
    "run_windows",
    "windows_named",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name from its module (PEP 562).

        Raises:
            AttributeError: there is no such public name.
        """
        if name not in _HOMES:
            msg = f"module 'windrow' has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module  # imported here, so that `import windrow` is quick

        module, _, attribute = _HOMES[name].partition(":")
        return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Returns the public names, for completion."""
    return sorted(__all__)
