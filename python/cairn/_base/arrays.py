"""The type of arrays in the host's memory."""

from __future__ import annotations

from typing import Any

import numpy

# An array of numpy, whatever its elements and its shape are.
Array = numpy.ndarray[Any, Any]
