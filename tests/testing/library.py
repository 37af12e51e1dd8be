"""Libraries that take seconds to import. Each process of pytest-xdist imports every test file, but runs few of them."""

import importlib
import importlib.util

import pytest


class Library:
    """Is the module `name`, imported when an attribute of it is first used. Without its package that test is skipped.

    Use it in functions and fixtures only: a decorator or a base class at the top of a file would import it at once.
    """

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        # While pytest collects tests, it asks everything at the top of a file for such names.
        if attribute.startswith(("_", "pytest")):
            raise AttributeError(attribute)
        package = self._name.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"not run: no {package}")
        return getattr(importlib.import_module(self._name), attribute)
