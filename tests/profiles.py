"""Profiles of Hypothesis: each scales the number of examples of every test.

Examples are random in all profiles (`derandomize` is off). No test fails because the machine is
slow (`deadline` is off).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

USUAL = 100
"""Number of examples of a test that sets no number, with the default profile."""

_COMMON = settings(
    deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
_EXAMPLES = {"default": USUAL, "ci": USUAL, "short": 25, "fast": 10, "soak": 1000}


def register() -> None:
    """Registers the profiles for `--hypothesis-profile`.

    Hypothesis chooses `ci` by itself in CI, and `default` elsewhere. The profiles `ci`, `short`
    and `soak` keep no database of examples: the seed repeats their failures on any machine.
    """
    for name, examples in _EXAMPLES.items():
        database_option = {"database": None} if name in {"ci", "short", "soak"} else {}
        settings.register_profile(name, _COMMON, max_examples=examples, **database_option)


def examples(usual: int, short: int | None = None) -> int:
    """Returns `max_examples` for a test whose examples are more or less expensive than usual.

    Args:
        usual: number of examples with the default profile; other profiles scale it.
        short: number of examples in `make test`; None if it is scaled like the others.
    """
    if short is not None and settings.default.max_examples == _EXAMPLES["short"]:
        return short
    return max(1, usual * settings.default.max_examples // USUAL)
