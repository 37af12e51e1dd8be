"""What a call refuses, told by its reason and not by its text."""

import contextlib

import pytest

import cairn


@contextlib.contextmanager
def raises_error(reason, **metadata):
    """Expects that its block raises cairn.Error with this reason, and with this metadata among its own.

    Gives what pytest.raises gives.
    """
    with pytest.raises(cairn.Error) as caught:
        yield caught
    assert caught.value.reason == reason, caught.value
    assert metadata.items() <= caught.value.metadata.items(), (metadata, caught.value.metadata)
