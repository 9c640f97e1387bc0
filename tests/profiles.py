"""Number of Hypothesis's examples: one number a profile, by which each test's own is scaled.

No profile repeats the same examples for ever (`derandomize`), and none fails a test
because the machine is busy (`deadline`).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

USUAL = 100
"""Examples of a test that says nothing, where nobody asks for more or fewer."""

_COMMON = settings(
    deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
_EXAMPLES = {"default": USUAL, "ci": USUAL, "short": 25, "fast": 10, "soak": 1000}


def register() -> None:
    """The profiles of `--hypothesis-profile`; in CI Hypothesis takes `ci` by itself, elsewhere `default`.

    `ci`, `short` and `soak` keep no database: what they find is replayed by the seed,
    on any machine.
    """  # noqa: E501
    for name, examples in _EXAMPLES.items():
        database_option = {"database": None} if name in {"ci", "short", "soak"} else {}
        settings.register_profile(name, _COMMON, max_examples=examples, **database_option)


def examples(usual: int, short: int | None = None) -> int:
    """`max_examples` of a test whose examples are dear or cheap: so many with the usual
    profile, and in proportion with the others; `short`: those of `make test`.
    """
    if short is not None and settings.default.max_examples == _EXAMPLES["short"]:
        return short
    return max(1, usual * settings.default.max_examples // USUAL)
