"""What Cairn keeps of a tensor beside its bytes, in numpy: docs/storage_format.md. Slow, and easy to check."""

from __future__ import annotations

from typing import Any

import numpy as np

ONES = 2**64 - 1


def fingerprint(array: np.ndarray) -> str:
    """Returns the CRC-64/XZ of the elements, row-major, little-endian."""
    table = [0] * 256
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
        table[byte] = crc
    crc = ONES
    for byte in np.ascontiguousarray(array).tobytes():
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return f"{crc ^ ONES:016x}"


def numbers(array: np.ndarray) -> dict[str, Any]:
    """Returns the numbers about the elements; all but the second are about the finite ones."""
    values = array.astype(np.float64).ravel()
    finite = np.isfinite(values)
    values = np.where(finite, values, 0)
    mix = (np.arange(-(-values.size // 64), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mix = (mix ^ mix >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ mix >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mix ^= mix >> np.uint64(31)
    negative = np.unpackbits(mix.astype("<u8").view(np.uint8), bitorder="little")[:values.size]
    signed = np.where(negative, -values, values)
    return {"zeros": int((values == 0)[finite].sum()), "non_finite": int((~finite).sum()),
            "min": values[finite].min(), "max": values[finite].max(), "sum": values.sum(),
            "sum_squares": (values * values).sum(), "sketches": [signed[lane::8].sum() for lane in range(8)]}
