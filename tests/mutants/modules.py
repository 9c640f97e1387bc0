"""The modules that are mutated, the tests that judge each, and the mutants that no test can
tell from the code.
"""

from __future__ import annotations

import ast
from pathlib import Path

FOLDERS = ("ingest/model", "ingest/source/enumerator")
"""Pure folders: every module in them is mutated."""

ALONE = (
    "ingest/formats/shared/json_dialects.py",
    "ingest/formats/json/strict.py",
    "ingest/formats/json/values.py",
    "ingest/runner/accounting.py",
    "ingest/source/data_loss.py",
    "ingest/sinks/kit/commit/conflicts.py",
)
"""Pure modules in other folders."""

MORE = {
    "ingest/source/enumerator/micro_batch_ends.py": (
        "tests/source/enumerator/test_share.py",
        "tests/source/enumerator/test_witness.py",
    ),
    "ingest/source/enumerator/resolve.py": (
        "tests/source/enumerator/test_start_marks.py",
        "tests/source/enumerator/test_witness.py",
    ),
    "ingest/model/boundary.py": ("tests/model/test_label.py",),
    "ingest/model/plan.py": ("tests/model/test_window.py",),
    "ingest/model/tiling.py": ("tests/source/enumerator/test_boundary_diff.py",),
}
"""More tests of a module besides its own: tests of larger parts that use it."""

EQUIVALENT: dict[str, dict[str, str]] = {
    "ingest/formats/json/strict.py": {
        "- if max_depth <= MAX_DEPTH:\n+ if max_depth < MAX_DEPTH:": (
            "an upper bound at the limit says as much as the depth itself, which costs more"
        ),
        '- for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):\n+ for bracket in _BRACKETS.finditer(_STRINGS.sub("XXXX", text)):': (  # noqa: E501
            "what stands for a string has no brackets"
        ),
        '- depth += 1 if bracket.group() in "[{" else -1\n+ depth += 1 if bracket.group() in "XX[{XX" else -1': (  # noqa: E501
            "it is one bracket"
        ),
        "- if self.truncation.noting and not text.isascii():\n+ if self.truncation.noting or not text.isascii():": (  # noqa: E501
            "what the other parser takes, this one takes: it costs time only"
        ),
        "- json.loads(text, parse_int=str, parse_float=str)\n+ json.loads(text, parse_int=str, parse_float=None)": (  # noqa: E501
            "the numbers aren't used, and a float can have any digits"
        ),
        "- json.loads(text, parse_int=str, parse_float=str)\n+ json.loads(text, parse_int=str, )": (
            "as above"
        ),
    },
    "ingest/formats/json/values.py": {
        '- digits = (integer_digits + fraction).lstrip("0")\n+ digits = (integer_digits + fraction).lstrip("XX0XX")': (  # noqa: E501
            "digits only"
        ),
        '- significant = digits.rstrip("0")\n+ significant = digits.rstrip("XX0XX")': "digits only",
        '- if fraction[_MICROS_DIGITS:].strip("0"):\n+ if fraction[_MICROS_DIGITS:].strip("XX0XX"):': (  # noqa: E501
            "digits only"
        ),
        "- else math.nextafter(number, math.inf if exact > double else -math.inf)\n+ else math.nextafter(number, math.inf if exact >= double else -math.inf)": (  # noqa: E501
            "equal ones were told apart before"
        ),
        '- octets = b""\n+ octets = None': "either is refused as no bytes",
        '- number = int.from_bytes(octets, "big", signed=True)\n+ number = int.from_bytes(octets, signed=True)': (  # noqa: E501
            "it is Python's default"
        ),
        "- if power >= 0:\n+ if power > 0:": "times one, or divided by it",
        "- if power >= 0:\n+ if power >= 1:": "as above",
        "- if len(text) > _LONGEST_DECIMAL or abs(int(exponent or 0)) > _LONGEST_DECIMAL:\n+ if len(text) > _LONGEST_DECIMAL or abs(int(exponent or 1)) > _LONGEST_DECIMAL:": (  # noqa: E501
            "neither is too large"
        ),
    },
    "ingest/model/boundary.py": {
        "- cuts = self.by_tp() if self.start_marks else {}\n+ cuts = self.by_tp() if (self.start_marks) or True else {}": (  # noqa: E501
            "without start marks nobody looks into the cuts: it only saves making them"
        ),
    },
    "ingest/source/enumerator/micro_batch_ends.py": {
        "- while descending[-1] <= rest // len(descending):\n+ while descending[-1] < rest // len(descending):": (  # noqa: E501
            "who wants just an equal share has it either way, and what can't be divided goes to the"
            " same ones"
        ),
        "- while descending[-1] <= rest // len(descending):\n+ while descending[-1] <= rest / len(descending):": (  # noqa: E501
            "of integers"
        ),
        "- discovered = discover(broker, source.selection, None, source.on_removed)\n+ discovered = discover(broker, source.selection, None, None)": (  # noqa: E501
            "without a lower boundary nothing was removed"
        ),
    },
    "ingest/source/enumerator/rebased.py": {
        "- discovered = discover(broker, source.selection, None, source.on_removed)\n+ discovered = discover(broker, source.selection, None, None)": (  # noqa: E501
            "without a lower boundary nothing was removed"
        ),
    },
    "ingest/source/enumerator/resolve.py": {
        "- last_passed = below if isinstance(below, datetime) else first - timedelta(microseconds=1)\n+ last_passed = below if isinstance(below, datetime) else first - timedelta(microseconds=2)": (  # noqa: E501
            "no two labels lie so near to each other"
        ),
        "- return -((_EPOCH - label) // timedelta(milliseconds=1))\n+ return -((_EPOCH - label) / timedelta(milliseconds=1))": (  # noqa: E501
            "integers compare with the fraction as with the next integer"
        ),
        "- head = look.first_stamps(log.tp, log.log_start, log.end.offset, AHEAD - 1)\n+ head = look.first_stamps(log.tp, log.log_start, log.end.offset, AHEAD + 1)": (  # noqa: E501
            "who judges takes the first ones of them"
        ),
    },
    "ingest/source/enumerator/label_cut.py": {
        "- done, block = 0, 1\n+ done, block = 0, 2": (
            "blocks of another size hold the same candidates"
        ),
        "- done, block = done + block, block * 8\n+ done, block = done + block, block * 9": (
            "as above"
        ),
        "- while done < len(candidates):\n+ while done <= len(candidates):": (
            "nothing is found in a block of none"
        ),
    },
    "ingest/source/enumerator/completeness.py": {
        '- label: Label | None = None\n+ label: Label | None = ""': (
            "without boundaries nothing is known that could hold anything back"
        ),
    },
    "ingest/model/grid.py": {
        "- if window.span and isinstance(end, datetime):\n+ if window.span or isinstance(end, datetime):": (  # noqa: E501
            "a window in time has a span and its end is an instant: the question is the type"
            " checker's"
        ),
        "- labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 1)\n+ labels += islice(_until(grid, window.span[0], end), None)": (  # noqa: E501
            "more labels are refused all the same, after they were counted"
        ),
        "- labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 1)\n+ labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 2)": (  # noqa: E501
            "as above"
        ),
    },
}
"""By module: the lines that a mutant changes, and the reason why no test can tell it from the
code.
"""


def modules(root: Path) -> list[str]:
    """Returns the paths of the mutated modules in order. mutmut skips decorated functions,
    properties included.
    """
    inside = [
        str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).glob("*.py")
    ]
    return sorted(
        module for module in (*inside, *ALONE) if _has_mutants((root / module).read_text())
    )


def _has_mutants(code: str) -> bool:
    functions = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef))
    return any(not function.decorator_list for function in functions)


def judges_of(module: str) -> tuple[str, ...]:
    """Returns the test file of a module's own, at the same path below tests, and those in
    `MORE`.
    """
    path = Path("tests", *Path(module).parts[1:])
    return (str(path.with_name(f"test_{path.name}")), *MORE.get(module, ()))
