#!/usr/bin/env python3
"""Writes bert_tables.inc: what BERT's normalizers do to every Unicode scalar value, as observed.

    python3 corpus/wordpiece/generate_tables.py > corpus/wordpiece/bert_tables.inc

The `fast` profile is swept out of the installed `tokenizers` package (BertNormalizer, BertPreTokenizer, NFD): its
tables are older than any current Unicode, so only observation gives them. The `legacy` profile follows the original
BERT (and Megatron-LM before 2026), which asks the running Python's `unicodedata`; the header says of which version.
"""
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

LIMIT = 0x110000
SCALARS = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]
DROP, SPACE, CJK, PUNCT = "kDrop", "kSpace", "kCjk", "kPunct"
HANGUL = range(0xAC00, 0xD7A4)


class Profile:
    """classes: scalar -> DROP.. (absent: part of a word); lower_*: the same and the replacements when lower-casing."""

    def __init__(self):
        self.classes, self.lower_drop, self.lower_map, self.combining = {}, {}, {}, {}


def sort_into_profile(profile, scalar, cased, lowered, is_punct, is_space):
    """`cased` and `lowered`: what stands between 'a' and 'b' after normalization of 'a' + scalar + 'b'."""
    char = chr(scalar)
    if cased == "":
        profile.classes[scalar] = DROP
    elif cased == " " or (cased == char and is_space):
        profile.classes[scalar] = SPACE
    elif cased == f" {char} ":
        profile.classes[scalar] = CJK
    elif cased == char:
        if is_punct:
            profile.classes[scalar] = PUNCT
    else:
        raise ValueError(f"U+{scalar:04X}: unexpected {cased!r}")
    kind = profile.classes.get(scalar)
    if (kind == DROP and lowered == "") or (kind == SPACE and not lowered.strip()):
        return
    if kind == CJK:
        if not (lowered.startswith(" ") and lowered.endswith(" ") and len(lowered) > 2):
            raise ValueError(f"U+{scalar:04X}: unexpected {lowered!r}")
        lowered = lowered[1:-1]
    if lowered == "":
        profile.lower_drop[scalar] = True
    elif lowered != char and scalar not in HANGUL:
        profile.lower_map[scalar] = lowered


def check_hangul(scalar, lowered):
    index = scalar - 0xAC00
    jamo = chr(0x1100 + index // 588) + chr(0x1161 + index % 588 // 28)
    if index % 28:
        jamo += chr(0x11A7 + index % 28)
    if lowered != jamo:
        raise ValueError(f"U+{scalar:04X}: Hangul decomposes to {lowered!r}")


def note_combining(profile, combining_class, decompose):
    """Canonical classes of the characters that survive: canonical reordering may swap only these. A stripped mark
    of class 0, or one that decomposes into such, still stands between two of them."""
    for scalar in profile.lower_drop:
        ordered = decompose("\u302e" + chr(scalar) + "\U0001d165")  # classes 224 and 216
        profile.lower_drop[scalar] = ordered.index("\u302e") < ordered.index("\U0001d165")
    for scalar in SCALARS:
        if profile.classes.get(scalar) == DROP or scalar in profile.lower_drop or scalar in HANGUL:
            continue
        for char in profile.lower_map.get(scalar, chr(scalar)):
            if value := combining_class(char):
                profile.combining[ord(char)] = value


def fast_profile():
    profile = Profile()
    cased = normalizers.BertNormalizer(lowercase=False)
    lower = normalizers.BertNormalizer(lowercase=True)
    pre = pre_tokenizers.BertPreTokenizer()
    for scalar in SCALARS:
        text = "a" + chr(scalar) + "b"
        pieces = len(pre.pre_tokenize_str(text))
        lowered = lower.normalize_str(text)[1:-1]
        if scalar in HANGUL:
            check_hangul(scalar, lowered)
        sort_into_profile(profile, scalar, cased.normalize_str(text)[1:-1], lowered, pieces == 3, pieces == 2)

    # The canonical class of a character shows in how NFD orders it against marks of known classes.
    nfd = normalizers.NFD()
    marks = {}
    for scalar in range(0x300, 0x1000):
        if (value := unicodedata.combining(chr(scalar))) and nfd.normalize_str(chr(scalar)) == chr(scalar):
            marks.setdefault(value, chr(scalar))
    highest, lowest = marks[240], marks[min(marks)]
    classes = sorted(marks)
    cache = {}

    def combining_class(char):
        if char not in cache:
            moves = nfd.normalize_str(highest + char) != highest + char
            moves = moves or nfd.normalize_str(char + lowest) != char + lowest
            cache[char] = 0
            if moves:
                above = [c for c in classes if nfd.normalize_str(char + marks[c]) != char + marks[c]]
                below = [c for c in classes if nfd.normalize_str(marks[c] + char) != marks[c] + char]
                equal = [c for c in classes if c not in above and c not in below]
                # Without a mark of the same class: anything strictly between its neighbours orders alike.
                cache[char] = equal[0] if equal else (above[-1] + 1 if above else 1)
        return cache[char]

    note_combining(profile, combining_class, nfd.normalize_str)
    return profile


CJK_RANGES = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def legacy_profile():
    profile = Profile()
    for scalar in SCALARS:
        char, category = chr(scalar), unicodedata.category(chr(scalar))
        ascii_punct = 33 <= scalar <= 47 or 58 <= scalar <= 64 or 91 <= scalar <= 96 or 123 <= scalar <= 126
        if char in "\t\n\r":
            cased = " "
        elif scalar in (0, 0xFFFD) or category in ("Cc", "Cf"):
            cased = ""
        elif category == "Zs":
            cased = " "
        elif any(first <= scalar <= last for first, last in CJK_RANGES):
            cased = f" {char} "
        else:
            cased = char
        lowered = unicodedata.normalize("NFD", cased.lower())
        lowered = "".join(c for c in lowered if unicodedata.category(c) != "Mn")
        if scalar in HANGUL:
            check_hangul(scalar, lowered)
        sort_into_profile(profile, scalar, cased, lowered, ascii_punct or category.startswith("P"), char.isspace())
    note_combining(profile, unicodedata.combining, lambda text: unicodedata.normalize("NFD", text))
    return profile


def ranges(members):
    """Sorted scalars as (first, last); surrogates do not end a range."""
    result = []
    for scalar in sorted(members):
        if result and (result[-1][1] == scalar - 1 or (result[-1][1], scalar) == (0xD7FF, 0xE000)):
            result[-1][1] = scalar
        else:
            result.append([scalar, scalar])
    return result


def class_ranges(combining):
    """(first, last, class) of canonical classes."""
    return sorted((a, b, c) for c in set(combining.values())
                  for a, b in ranges(s for s in combining if combining[s] == c))


def runs(mapping):
    """Replacements by one character as (first, last, stride, delta)."""
    result = []
    for scalar in sorted(mapping):
        delta = ord(mapping[scalar]) - scalar
        for run in reversed(result[-2:]):
            stride = scalar - run[1]
            if run[3] == delta and stride in (1, 2) and (run[0] == run[1] or run[2] == stride):
                run[1], run[2] = scalar, stride
                break
        else:
            result.append([scalar, scalar, 1, delta])
    return result


def emit(name, header, rows):
    print(f"\nconstexpr {header} {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) > 118:
            print(line)
            line = "   "
        line += " " + row + ","
    print(line + "\n};")


def escaped(text):
    return "".join(f"\\U{ord(c):08X}" for c in text)


def emit_profile(prefix, profile):
    kinds = []
    for kind in (DROP, SPACE, CJK, PUNCT):
        kinds += [(a, b, kind) for a, b in ranges(s for s, k in profile.classes.items() if k == kind)]
    emit(f"{prefix}Classes", "ClassRange", [f"{{0x{a:X}, 0x{b:X}, CharClass::{k}}}" for a, b, k in sorted(kinds)])
    drops = [(a, b, str(starter).lower()) for starter in (False, True)
             for a, b in ranges(s for s, value in profile.lower_drop.items() if value == starter)]
    emit(f"{prefix}LowerDrops", "StrippedMarks",
         [f"{{0x{a:X}, 0x{b:X}, {starter}}}" for a, b, starter in sorted(drops)])
    single = {s: text for s, text in profile.lower_map.items() if len(text) == 1}
    emit(f"{prefix}LowerRuns", "LowerRun", [f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}" for a, b, s, d in runs(single)])
    several = sorted((s, text) for s, text in profile.lower_map.items() if len(text) > 1)
    emit(f"{prefix}LowerExpansions", "LowerExpansion",
         [f'{{0x{s:X}, U"{escaped(text)}"}}' for s, text in several])
    emit(f"{prefix}Combining", "CombiningClass",
         [f"{{0x{a:X}, 0x{b:X}, {c}}}" for a, b, c in class_ranges(profile.combining)])


def main():
    print("// Generated by generate_tables.py; not to be edited.")
    print(f"// fast: tokenizers {tokenizers.__version__}. legacy: Unicode {unicodedata.unidata_version}.")
    emit_profile("kFast", fast_profile())
    emit_profile("kLegacy", legacy_profile())
    # str.lower() turns a capital sigma into a final one after a cased letter and before none; case-ignorable
    # characters on the way do not count. Both properties as they show.
    cased, ignorable = set(), set()
    for scalar in SCALARS:
        if (chr(scalar) + "\u03a3").lower()[-1] == "\u03c2":
            cased.add(scalar)
        elif ("A" + chr(scalar) + "\u03a3").lower()[-1] == "\u03c2":
            ignorable.add(scalar)
    emit("kCased", "ScalarRange", [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(cased)])
    emit("kCaseIgnorable", "ScalarRange", [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(ignorable)])


if __name__ == "__main__":
    sys.exit(main())
