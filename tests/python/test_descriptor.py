"""Tests that a forked child has none of the descriptors that were taken."""

import os
import subprocess
import sys

import pytest

from testing import descriptor_checks


@pytest.mark.parametrize("check", [check.__name__ for check in descriptor_checks.ALL])
def test_of_forks(check):
    program = f"from testing import descriptor_checks; descriptor_checks.{check}()"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
