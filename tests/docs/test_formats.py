"""docs/formats.md, docs/registry.md and docs/change-data.md: each example message is decoded.

The result must be the one on the page.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.registry.server import RegistryServer
from windrow.ingest.assemble import table_columns
from windrow.ingest.config.load import load_spec
from windrow.ingest.formats.kind import KEY_FORMATS
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.schema_registry import UsesSchemas
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import messages_with
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.validate import Validate

PAGES = "".join(
    (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    for page in ("formats.md", "registry.md", "change-data.md")
)
BLOCK = re.compile(
    r"^```yaml\n(.*?)^```\n+(?:^```proto\n(.*?)^```\n+)?(?:^```json\n(.*?)^```\n+)?(?:^```python\n(.*?)^```\n+)?((?:^\|[^\n]*\n)+)",
    re.DOTALL | re.MULTILINE,
)
SPEC = """\
id: examples
source: {bootstrap_servers: "127.0.0.1:9", topic: examples}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
sink: {path: table}
"""


@dataclass(frozen=True)
class Example:
    """An example on the page.

    Attributes:
        decode: the section of the spec.
        proto: the .proto file in the spec's folder, if the format needs one.
        schemas: the schemas of the registry, with the ids 1, 2 and so on.
        schema: the Python schema, or that of the example before.
        messages: the rows of the table; each has its cells by heading.
    """

    decode: str
    proto: str
    schemas: str
    schema: str
    messages: list[dict[str, str]]


def examples() -> Iterator[Example]:
    """Yields the examples in the order of the pages."""
    schema = ""
    for decode, proto, schemas, model, table in BLOCK.findall(PAGES):
        schema = model or schema
        heads, _, *rows = [
            [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in table.splitlines()
        ]
        yield Example(
            decode,
            proto,
            schemas,
            schema,
            [dict(zip([head.strip() for head in heads], row, strict=True)) for row in rows],
        )


EXAMPLES = list(examples())


def octets(cell: str) -> bytes | None:
    """Returns the bytes of a cell, which has Python's escapes; None for `none`."""
    return (
        None
        if cell == "none"
        else cell.strip("`")
        .encode("latin-1", "backslashreplace")
        .decode("unicode_escape")
        .encode("latin-1")
    )


def headers(cell: str) -> list[tuple[str, bytes | None]]:
    """Returns the headers in a cell, which has `name: value` pairs."""
    return [(name, octets(value)) for name, value in re.findall(r"`([\w-]+): ([^`]*)`", cell)]


def became(decoded: Decoded) -> str:
    """Returns the result of a message in the form of the page."""
    if decoded.rows.num_rows:
        return ", ".join(f"`{json.dumps(row, default=_text)}`" for row in decoded.rows.to_pylist())
    return (
        f"dead letter, {decoded.dead_stage[0]}: `{decoded.dead_reason[0]}`"
        if len(decoded.dead_index)
        else "counted only"
    )


def _text(value: Any) -> str:
    return (
        value.hex()
        if isinstance(value, bytes)
        else value.isoformat()
        if hasattr(value, "isoformat")
        else str(value)
    )


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda example: re.sub(r"\W+", " ", example.decode).strip()
)
def test_each_message_becomes_what_stands_beside_it(
    example: Example, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """Each message of an example becomes the row or dead letter on the page.

    The decoder works in another process without the spec's files.
    """
    (tmp_path / "schema.py").write_text(example.schema)
    (tmp_path / "visit.proto").write_text(example.proto)
    spec_text = (
        SPEC.replace(
            "topic: examples", f"topic: examples, registry: {{url: '{schema_registry.url}'}}"
        )
        if example.schemas
        else SPEC
    )
    for schema in json.loads(example.schemas or "[]"):
        is_avro = isinstance(schema, dict)
        schema_registry.register(
            "examples-value",
            json.dumps(schema) if is_avro else schema,
            "AVRO" if is_avro else "PROTOBUF",
        )
    (tmp_path / "defs.yaml").write_text(spec_text + example.decode)
    spec = load_spec(tmp_path / "defs.yaml")
    assert table_columns(spec).columns
    decoder = make_decoder(spec.decode, tmp_path)
    asking = (
        decoder.asking(spec.registry)
        if isinstance(decoder, UsesSchemas) and spec.registry
        else decoder
    )
    packed = pickle.dumps(
        (
            asking,
            Chain(
                ()
                if spec.decode.schema_ is None
                else (Validate(ModelReference(spec.decode.schema_, tmp_path)),)
            ),
        )
    )
    shutil.rmtree(tmp_path)
    unpickled, chain = pickle.loads(packed)
    decode = unpickled.open()
    rules = chain.open()
    for message in example.messages:
        key, value = octets(message.get("key", "none")), octets(message["value"])
        messages = messages_with([value], [key], [headers(message.get("headers", ""))])
        decoded = rules(decode(messages), messages)
        assert became(decoded) == message["becomes"], message


def test_every_format_has_an_example() -> None:
    """The pages have an example for each format of values, and key formats are among them."""
    formats_of_examples = [
        re.findall(r"^  format: ([\w-]+)", example.decode, re.MULTILINE) or ["json"]
        for example in EXAMPLES
    ]
    assert {formats[0] for formats in formats_of_examples} == set(FORMATS)
    assert set(KEY_FORMATS) <= set(FORMATS)
