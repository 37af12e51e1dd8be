#!/usr/bin/env python3
"""Writes class_table_data.inc, the frozen Unicode classes of the pre-tokenizers.

    pip install unicodedata2==16.0.0
    corpus/unicode/generate_class_table.py > corpus/unicode/class_table_data.inc

Unicode 16.0.0 is what the regular expressions of tokenizers 0.23 (Oniguruma) and tiktoken 0.14 (fancy-regex) know, so
texts are cut as they cut them. A later version moves characters from "unassigned" to "letter" and thereby changes ids:
the version changes only together with theirs.
"""
import sys

VERSION = "16.0.0"
LETTER, NUMBER, SPACE, UPPER, LOWER, MARK = 1, 2, 4, 8, 16, 32

# White_Space of PropList.txt; unchanged since Unicode 6.3 and not in unicodedata.
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}


def class_of(unicodedata, code_point):
    category = unicodedata.category(chr(code_point))
    bits = 0
    if category[0] == "L":
        bits |= LETTER
    if category[0] == "N":
        bits |= NUMBER
    if category[0] == "M":
        bits |= MARK
    if category in ("Lu", "Lt", "Lm", "Lo") or category[0] == "M":
        bits |= UPPER
    if category in ("Ll", "Lm", "Lo") or category[0] == "M":
        bits |= LOWER
    if code_point in WHITE_SPACE:
        bits |= SPACE
    return bits


def main():
    import unicodedata2

    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"error: unicodedata2 has Unicode {unicodedata2.unidata_version}, wanted {VERSION}")
    blocks = {}
    index = []
    for start in range(0, 0x110000, 256):
        block = tuple(class_of(unicodedata2, c) for c in range(start, start + 256))
        index.append(blocks.setdefault(block, len(blocks)))
    print(f"// Unicode {VERSION}. Written by generate_class_table.py; do not edit.")
    print("#include \"corpus/unicode/class_table.h\"\n\nnamespace cairn::corpus {\n")
    print(f"constexpr uint8_t kUnicodeBlockOf[{len(index)}] = {{")
    for i in range(0, len(index), 32):
        print("    " + " ".join(f"{b}," for b in index[i : i + 32]))
    print("};")
    print(f"constexpr uint8_t kUnicodeClasses[{len(blocks)}][256] = {{")
    for block in blocks:
        print("    {")
        for i in range(0, 256, 32):
            print("        " + " ".join(f"{b}," for b in block[i : i + 32]))
        print("    },")
    print("};\n\n}  // namespace cairn::corpus")


main()
