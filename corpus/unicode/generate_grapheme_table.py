#!/usr/bin/env python3
"""Writes grapheme_table.inc: what each Unicode scalar value is to Hugging Face tokenizers' graphemes, as observed.

    python3 corpus/unicode/generate_grapheme_table.py > corpus/unicode/grapheme_table.inc

The normalizer Precompiled replaces a grapheme of less than six bytes as a whole, and a longer one by its characters. So
a map that replaces everything by one letter shows, by the number of letters, where graphemes end. Regional indicators
have four bytes, so their graphemes never show. Run this again when a new version of tokenizers gives other ids, and
only then.
"""
import struct

import tokenizers
from tokenizers.normalizers import Precompiled

SCALARS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
MARK, LINKER, ZWJ = "\u0301", "\u094d", "\u200d"
KA, HEART, PREFIX = "\u0915", "\u2764", "\u0600"
L, V, T = "\u1100", "\u1160", "\u11a8"
(OTHER, CONTROL, EXTEND, EXTEND_APART, LINKS, JOINER, SPACING_MARK, PREPEND, CONSONANT, PICTOGRAPH, HANGUL_L, HANGUL_V,
 HANGUL_T, HANGUL_LV, HANGUL_LVT) = range(15)


def map_of_lead_bytes():
    """A double-array trie in which each first byte of a character is a key, whose replacement is the letter X."""
    units = {0: 0x100 << 10}  # the children of the root stand at 0x100 ^ byte
    leaves = 0x200
    for byte in (*range(1, 0x80), *range(0xC2, 0xF5)):
        place = 0x100 ^ byte
        units[place] = byte | 1 << 8 | (leaves ^ place) << 10
        units[leaves] = 1 << 31  # the value 0
        leaves += 1
    array = struct.pack("<768I", *(units.get(i, 0) for i in range(0x300)))
    return struct.pack("<I", len(array)) + array + b"X\0"


PIECES = Precompiled(map_of_lead_bytes())


def count(text):
    pieces = PIECES.normalize_str(text)
    if pieces.strip("X"):
        raise ValueError(f"{text!r} became {pieces!r}")
    return len(pieces)


def kinds_of(char):
    """Yields each kind that the character shows; one at most, if it is of a kind that this script knows."""
    if count(f"a{char}") == 1:
        if char == ZWJ:
            yield JOINER
        elif count(f"{HEART}{char}{ZWJ}{HEART}{MARK}") != 5:
            yield SPACING_MARK
        elif count(f"{KA}{char}{KA}{MARK}") == 4:
            yield LINKS
        else:
            yield EXTEND if count(f"{KA}{char}{LINKER}{KA}{MARK}") == 5 else EXTEND_APART
        return
    if count(f"{char}a") == 1:
        yield PREPEND
    if count(f"{char}{MARK}{MARK}") == 2:
        yield CONTROL
    if count(f"{char}{ZWJ}{HEART}{MARK}") == 4:
        yield PICTOGRAPH
    if count(f"{char}{LINKER}{KA}{MARK}") == 4:
        yield CONSONANT
    joins = tuple(count(f"{PREFIX}{before}{char}") == 3 for before in (L, V, T))
    if joins == (True, True, False):
        yield HANGUL_V
    elif joins == (False, True, True):
        yield HANGUL_T
    elif joins == (True, False, False):
        before_v, before_t = (count(f"{PREFIX}{char}{after}") == 3 for after in (V, T))
        yield {(True, False): HANGUL_L, (True, True): HANGUL_LV, (False, True): HANGUL_LVT}[before_v, before_t]
    elif any(joins):
        raise ValueError(f"U+{ord(char):04X} joins like no part of a syllable")


def main():
    runs, last = ["{0x0, 1},"], CONTROL
    for scalar in SCALARS:
        kinds = list(kinds_of(chr(scalar)))
        if len(kinds) > 1:
            raise ValueError(f"U+{scalar:04X} is of the kinds {kinds}")
        kind = kinds[0] if kinds else OTHER
        if kind != last:
            runs.append(f"{{0x{scalar:X}, {kind}}},")
            last = kind
    print(f"// Observed in tokenizers {tokenizers.__version__} by generate_grapheme_table.py; do not edit.")
    print("\nconstexpr Run kRuns[] = {")
    for i in range(0, len(runs), 8):
        print("    " + " ".join(runs[i : i + 8]))
    print("};")


main()
