#!/usr/bin/env python3
"""Writes multilingual text of any size, the same for the same seed.

    benchmarks/corpus/multilingual_text.py --bytes 300000000 --seed 1 > corpus.txt

Words of each language are built from that language's syllables; how often each occurs follows Zipf's law with an
exponent near 1, and new words keep appearing (hapaxes), as in natural text. Ten parts in rotation: English-like and
other Latin text, Cyrillic, Greek, Arabic, Hindi, Chinese, Japanese and Korean without or with blanks, source code,
numbers and dates. Lines have 20 to 400 characters.
"""
import argparse
import random
import sys
from bisect import bisect
from itertools import accumulate

SYLLABLES = {
    "english": "the re ing er an ti on st en al ve com pro tion ment ly un in dis able ous ness ter ra lo mi ca de so".split(),  # noqa: E501
    "german": "sch ein ver ung lich keit ge be auf ach stra ße für über mög hä zu wer den tag ich nd ür".split(),
    "french": "le que tion eur eux ai ou é è ment con dé ré par en ç œu pour qu oi ne".split(),
    "turkish": "lar ler ın iş çe ğı yor mek de bir şu ka ra im öğ üz an".split(),
    "russian": "ста про ени ова ть ный ко пере при го ра ли не на во по ска щи ет ом ых".split(),
    "greek": "και του της ση μα πρ οσ εν αν τι κα λο γο ία ων ού".split(),
    "arabic": "ال من في مت ون ات است كت رب ما لا نا ها يس مع دي".split(),
    "hindi": "का की में है ने से पर हम ना रा ती कि या वि प्र स्था क्ष".split(),
    "korean": "한 국 어 는 은 이 가 을 를 에 서 하 다 고 습 니 대 학 교 사 람".split(),
}
CHINESE = [chr(c) for c in range(0x4E00, 0x4E00 + 2600)]
KANA = [chr(c) for c in range(0x3041, 0x3094)] + [chr(c) for c in range(0x30A1, 0x30F7)]
KEYWORDS = "return if else for while int auto const def self import None True void struct std size_t nullptr".split()


class Lexicon:
    """Words by rank with Zipf weights; past the end, words that occur once."""

    def __init__(self, rng, make, size, exponent=1.05):
        seen = set()
        while len(seen) < size:
            seen.add(make(rng))
        self.words = sorted(seen)
        rng.shuffle(self.words)
        self.cumulative = list(accumulate(1 / (rank + 2.7) ** exponent for rank in range(size)))
        self.make = make

    def draw(self, rng, count, fresh=0.006):
        words = rng.choices(self.words, cum_weights=self.cumulative, k=count)
        return [self.make(rng) if rng.random() < fresh else word for word in words]


def syllable_maker(syllables):
    return lambda rng: "".join(rng.choices(syllables, k=rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5))))


def segments_maker(characters):
    weights = list(accumulate(1 / (i + 5) for i in range(len(characters))))
    return lambda rng: "".join(rng.choices(characters, cum_weights=weights, k=rng.choice((1, 2, 2, 2, 3, 4))))


def identifier(rng):
    return "_".join(rng.choices(SYLLABLES["english"], k=rng.choice((1, 2, 2, 3))))


def sentences(rng, lexicon, capital=True, blank=" ", stop=". "):
    parts = []
    for _ in range(rng.randint(1, 4)):
        words = lexicon.draw(rng, rng.randint(3, 18))
        if capital:
            words[0] = words[0].capitalize()
        if rng.random() < 0.4 and len(words) > 4:
            words[len(words) // 2] += "," if blank else "、"
        if blank and rng.random() < 0.1:
            words[-1] += rng.choice(("'s", "'t", "'re", "!", "?", " (sic)"))
        parts.append(blank.join(words))
    return stop.join(parts) + stop.strip()


def code(rng, lexicon):
    indent = "    " * rng.randint(0, 3)
    names = lexicon.draw(rng, 4)
    return rng.choice(
        (
            f"{indent}{rng.choice(KEYWORDS)} {names[0]}({names[1]}, {names[2]}[{rng.randint(0, 99)}]);",
            f"{indent}{names[0]} = {names[1]} + {rng.randint(0, 9999)}  # {names[2]} {names[3]}",
            f"{indent}if ({names[0]} != {names[1]}) {{ return {names[2]}.{names[3]}(); }}",
        )
    )


def numbers(rng, _):
    return " ".join(
        rng.choice(
            (
                f"{rng.randint(1900, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
                f"{rng.random() * 10 ** rng.randint(0, 6):.2f}",
                f"https://example.org/{rng.choice(KEYWORDS)}/{rng.randint(1, 99999)}",
                f"{rng.randint(1, 999)},{rng.randint(0, 999):03}",
            )
        )
        for _ in range(rng.randint(3, 9))
    )


def parts(rng, words):
    made = {name: Lexicon(rng, syllable_maker(syllables), words) for name, syllables in SYLLABLES.items()}
    chinese = Lexicon(rng, segments_maker(CHINESE), words)
    japanese = Lexicon(rng, segments_maker(CHINESE[:900] + KANA * 4), words)
    names = Lexicon(rng, identifier, words // 5)
    table = [(6, lambda: sentences(rng, made["english"]))]
    for name in ("german", "french", "turkish", "russian", "greek"):
        table.append((1, lambda name=name: sentences(rng, made[name])))
    for name in ("arabic", "hindi", "korean"):
        table.append((1, lambda name=name: sentences(rng, made[name], capital=False)))
    table.append((1, lambda: sentences(rng, chinese, capital=False, blank="", stop="。")))
    table.append((1, lambda: sentences(rng, japanese, capital=False, blank="", stop="。")))
    table.append((2, lambda: code(rng, names)))
    table.append((1, lambda: numbers(rng, None)))
    return table


def lines(size, seed, words=30000):
    """Lines of together about `size` bytes; each language has `words` words besides those that occur once."""
    rng = random.Random(seed)
    table = parts(rng, words)
    bounds = list(accumulate(weight for weight, _ in table))
    written = 0
    while written < size:
        line = table[bisect(bounds, rng.random() * bounds[-1])][1]() + "\n"
        if rng.random() < 0.05:
            line += "\n"
        data = line.encode()
        written += len(data)
        yield data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for line in lines(arguments.bytes, arguments.seed):
        sys.stdout.buffer.write(line)


if __name__ == "__main__":
    main()
