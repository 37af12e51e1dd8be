"""Holds every run of `cairn corpus` by these tests to one promise: a flag that an error names is one of the command."""

import subprocess

import pytest
from flags_in_errors import check


@pytest.fixture(autouse=True)
def errors_name_flags_that_are_there():
    communicate = subprocess.Popen.communicate

    def checked(self, *arguments, **more):
        out, error = communicate(self, *arguments, **more)
        if "--help" not in self.args:  # by which the check asks
            check(self.args, error)
        return out, error

    subprocess.Popen.communicate = checked
    yield
    subprocess.Popen.communicate = communicate
