"""Contract suites, one for each interface that plugins implement; they need pytest.

A suite is a class of cases. A test module subclasses it, and says what is tested by fixtures or
methods.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__)))
