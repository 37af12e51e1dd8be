#!/usr/bin/env python3
"""Writes character_tables.inc: how Hugging Face tokenizers sees each Unicode scalar value, as observed.

    python3 corpus/unicode/generate_character_tables.py > corpus/unicode/character_tables.inc

Its parts use different Unicode versions, so only observation gives them. Run this again when a new version of
tokenizers gives other ids, and only then.
"""
import tokenizers
from tokenizers import normalizers, pre_tokenizers

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NUMERIC, PUNCTUATION, WORD, MARK, NONSPACING, SPACE, CONTROL, IDEOGRAPH = (1 << i for i in range(8))


def flags_of():
    digits = pre_tokenizers.Digits(individual_digits=True)
    punctuation = pre_tokenizers.Punctuation()
    whitespace = pre_tokenizers.Whitespace()
    blanks = pre_tokenizers.WhitespaceSplit()
    accents = normalizers.StripAccents()
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    nonspacing = normalizers.BertNormalizer(**bert | {"strip_accents": True})
    clean = normalizers.BertNormalizer(**bert | {"clean_text": True})
    chinese = normalizers.BertNormalizer(**bert | {"handle_chinese_chars": True})

    def pieces(rule, char):
        return len(rule.pre_tokenize_str(f"a{char}a"))

    for scalar in SCALARS:
        char = chr(scalar)
        yield scalar, (
            NUMERIC * (pieces(digits, char) == 3)
            | PUNCTUATION * (pieces(punctuation, char) == 3)
            | WORD * (pieces(whitespace, char) == 1)
            | SPACE * (pieces(blanks, char) == 2)
            | MARK * (accents.normalize_str(char) == "")
            | NONSPACING * (nonspacing.normalize_str(char) == "")
            | CONTROL * (clean.normalize_str(char) == "")
            | IDEOGRAPH * (chinese.normalize_str(char) == f" {char} ")
        )


def scripts_of():
    """Numbers the scripts of pre_tokenizers.UnicodeScripts; 0 is the one that joins any other."""
    rule = pre_tokenizers.UnicodeScripts()
    known = []
    last = 0
    for scalar in SCALARS:
        char = chr(scalar)
        if not rule.pre_tokenize_str(char):
            last = 0
        elif last == 0 or len(rule.pre_tokenize_str(known[last - 1] + char)) != 1:
            same = (i for i, other in enumerate(known) if len(rule.pre_tokenize_str(other + char)) == 1)
            place = next(same, len(known))
            if place == len(known):
                known.append(char)
            last = place + 1
        yield scalar, last


def runs(pairs):
    last = None
    for scalar, value in pairs:
        if value != last:
            yield f"{{0x{scalar:X}, {value}}},"
            last = value


def write(name, kind, entries):
    entries = list(entries)
    print(f"\nconstexpr {kind} {name}[] = {{")
    for i in range(0, len(entries), 8):
        print("    " + " ".join(entries[i : i + 8]))
    print("};")


def main():
    print(f"// Observed in tokenizers {tokenizers.__version__} by generate_character_tables.py; do not edit.")
    write("kFlagRuns", "Run", runs(flags_of()))
    write("kScriptRuns", "Run", runs(scripts_of()))
    lower = normalizers.Lowercase()
    lowered = ((c, [ord(d) for d in lower.normalize_str(chr(c))]) for c in SCALARS)
    changed = [(c, to) for c, to in lowered if to != [c]]
    if any(len(to) > 2 for _, to in changed):
        raise ValueError("a lower-case form has more than two characters")
    write("kLowered", "Lowered", (f"{{0x{c:X}, 0x{to[0]:X}, 0x{(to + [0])[1]:X}}}," for c, to in changed))


main()
