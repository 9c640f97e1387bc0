"""Kafka topics become tables, one bounded window at a time, exactly once; a library that needs no Dagster.

The names in `__all__` are what Python code may rely on: `docs/python.md` shows them at work. Everything else below `ingest` may change
from one version to the next without a word.

A name is loaded when it is first used, so `import ingest` costs nothing, and who only reads a spec loads neither Kafka's client nor Spark.
None is called like a module of `ingest`: importing that module would put it over the name.
"""

TYPE_CHECKING = False
"""True for type checkers alone; `typing` has the same constant, and takes longer to load than this module."""

if TYPE_CHECKING:
    from ingest.assemble import assemble as open_pipeline
    from ingest.errors import BugError, NotClosedError, RefusedError, SpecError, UnreachableError, WindrowError
    from ingest.frames.formats import WindrowKafka, WindrowSource
    from ingest.model.plan import Plan
    from ingest.model.receipt import Committed, Receipt
    from ingest.model.window import Window
    from ingest.operate.dead_letters import Chosen
    from ingest.operate.edit import RefusedMessage
    from ingest.operate.mend import Mended, MendRequest
    from ingest.operate.mend import mend as mend_window
    from ingest.operate.receipts import read_receipts
    from ingest.run.context import Pipeline, Request, Result
    from ingest.run.micro_batches import run_batches
    from ingest.run.pipeline import preview as preview_window
    from ingest.run.pipeline import run as run_window
    from ingest.spec.load import load_spec
    from ingest.spec.pipeline import PipelineSpec
    from ingest.spec.windows import windows_named

_HOMES = {
    "BugError": "ingest.errors:BugError",
    "Chosen": "ingest.operate.dead_letters:Chosen",
    "Committed": "ingest.model.receipt:Committed",
    "MendRequest": "ingest.operate.mend:MendRequest",
    "Mended": "ingest.operate.mend:Mended",
    "NotClosedError": "ingest.errors:NotClosedError",
    "Pipeline": "ingest.run.context:Pipeline",
    "PipelineSpec": "ingest.spec.pipeline:PipelineSpec",
    "Plan": "ingest.model.plan:Plan",
    "Receipt": "ingest.model.receipt:Receipt",
    "RefusedError": "ingest.errors:RefusedError",
    "RefusedMessage": "ingest.operate.edit:RefusedMessage",
    "Request": "ingest.run.context:Request",
    "Result": "ingest.run.context:Result",
    "SpecError": "ingest.errors:SpecError",
    "UnreachableError": "ingest.errors:UnreachableError",
    "Window": "ingest.model.window:Window",
    "WindrowError": "ingest.errors:WindrowError",
    "WindrowKafka": "ingest.frames.formats:WindrowKafka",
    "WindrowSource": "ingest.frames.formats:WindrowSource",
    "load_spec": "ingest.spec.load:load_spec",
    "mend_window": "ingest.operate.mend:mend",
    "open_pipeline": "ingest.assemble:assemble",
    "preview_window": "ingest.run.pipeline:preview",
    "read_receipts": "ingest.operate.receipts:read_receipts",
    "run_batches": "ingest.run.micro_batches:run_batches",
    "run_window": "ingest.run.pipeline:run",
    "windows_named": "ingest.spec.windows:windows_named",
}
"""Where each public name is made: the module, and its name there. `tests/shape/test_face.py` holds it to the imports above."""

__all__ = [
    "BugError",
    "Chosen",
    "Committed",
    "MendRequest",
    "Mended",
    "NotClosedError",
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
    "mend_window",
    "open_pipeline",
    "preview_window",
    "read_receipts",
    "run_batches",
    "run_window",
    "windows_named",
]

if not TYPE_CHECKING:  # a type checker that knew of it would take any name

    def __getattr__(name: str) -> object:
        """Load a public name from its module (PEP 562).

        Raises:
            AttributeError: there is no such public name.
        """
        if name not in _HOMES:
            msg = f"module 'ingest' has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module  # noqa: PLC0415  # `import ingest` loads nothing

        module, _, attribute = _HOMES[name].partition(":")
        return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
