#!/usr/bin/env python3
"""Writes real texts of several kinds from what a machine has: prose, code, translations, and lines full of emoji.

    benchmarks/corpus/machine_texts.py DIRECTORY --bytes 6000000

Of each kind there are NAME.txt, and NAME.train.txt of other files, on which tokenizers are trained. No line of a kind
occurs twice. Prose is in the Markdown, reStructuredText and man pages of /usr and of Python's packages; code in their
Python, C, C++, Go and JavaScript files; other languages are translations of programs' messages (/usr/share/locale).
"""
import argparse
import gettext
import gzip
import itertools
import os
import pathlib
import random
import re
import site
import sys
import unicodedata

ROOTS = ["/usr/share", "/usr/include", "/usr/lib", "/usr/local", *site.getsitepackages(), os.path.dirname(os.__file__)]
CODE = (".py", ".h", ".hpp", ".c", ".cc", ".go", ".js", ".ts")
PROSE = (".md", ".rst", ".txt", ".pod")
LANGUAGES = ("ru", "zh_CN", "ja", "ko", "ar", "hi", "el", "de")
ROFF = re.compile(r"^[.'].*$|\\f.|\\\(..|\\[&/,|^]|\\-", re.MULTILINE)


def files_below(roots, suffixes):
    seen = set()
    for root in roots:
        for directory, names, files in os.walk(root):
            names.sort()
            for name in sorted(files):
                path = os.path.join(directory, name)
                if name.endswith(suffixes) and os.path.realpath(path) not in seen:
                    seen.add(os.path.realpath(path))
                    yield path


def read(path):
    try:
        if path.endswith(".gz"):
            return ROFF.sub("", gzip.decompress(pathlib.Path(path).read_bytes()).decode())
        return pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


def is_prose(line):
    letters = sum(c.isalpha() or c == " " for c in line)
    return len(line) > 40 and letters > 0.85 * len(line)


def prose():
    manuals = files_below(["/usr/share/man/man" + n for n in "12345678"], ".gz")
    for path in itertools.chain(manuals, files_below(ROOTS, PROSE)):
        if "gcloud" in path:
            continue  # 20,000 pages of the same sentences
        lines = [line for line in read(path).split("\n") if is_prose(line)]
        yield "\n".join(lines)


def code():
    for path in files_below(ROOTS, CODE):
        yield read(path)


def translations(language):
    for path in files_below([f"/usr/share/locale/{language}/LC_MESSAGES"], ".mo"):
        try:
            with open(path, "rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog
        except (OSError, UnicodeDecodeError):
            continue
        texts = [text for key, text in catalog.items() if key and isinstance(text, str) and not text.isascii()]
        for i in range(0, len(texts), 50):
            yield "\n".join(texts[i : i + 50])


def multilingual():
    """Documents of fifty messages of one language; they are shuffled later."""
    for language in LANGUAGES:
        yield from translations(language)


def emoji():
    rng = random.Random(1)
    faces = [chr(c) for c in itertools.chain(range(0x1F300, 0x1F650), range(0x1F900, 0x1FA00), range(0x2600, 0x27C0))]
    faces = [c for c in faces if unicodedata.category(c) == "So"]
    common = rng.sample(faces, 60)
    words = "so happy today! love this lol omg we did it thanks everyone see you soon good luck team what a day".split()
    for _ in range(50_000):
        line = []
        for _ in range(rng.randint(3, 12)):
            face = rng.choice(common if rng.random() < 0.7 else faces)
            face += rng.choice(("", "", "\ufe0f", chr(0x1F3FB + rng.randint(0, 4)), "\u200d" + rng.choice(common)))
            line += [*rng.choices(words, k=rng.randint(0, 3)), face * rng.choice((1, 1, 1, 2, 3))]
        yield " ".join(line) + f" #{rng.randint(0, 10**6)}"


def write(directory, name, documents, size):
    """Every second document of a kind is for training, so that both texts are of the same kind."""
    outputs = [[], []]
    sizes = [0, 0]
    seen = set()
    for document in documents:
        lines = []
        for line in document.split("\n"):
            if line in seen and line.strip():
                continue
            seen.add(line)
            lines.append(line)
        text = "\n".join(lines).strip("\n") + "\n"
        which = 0 if sizes[0] <= sizes[1] else 1
        room = size - sizes[which]
        data = text.encode(errors="ignore")
        if len(data) > 200_000:
            continue  # a generated table
        if room <= 0:
            break
        outputs[which].append(data)
        sizes[which] += len(data)
    (directory / f"{name}.txt").write_bytes(b"".join(outputs[0]))
    (directory / f"{name}.train.txt").write_bytes(b"".join(outputs[1]))
    print(f"{name:10} {sizes[0] / 1e6:6.2f} MB and {sizes[1] / 1e6:6.2f} MB to train on")


def shuffled(documents, most):
    documents = list(itertools.islice((d for d in documents if d.strip()), most))
    random.Random(2).shuffle(documents)
    return documents


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, default=6_000_000)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    kinds = {"english": prose(), "code": code(), "emoji": emoji()}
    kinds.update(chinese=translations("zh_CN"), multilingual=multilingual())
    for name, documents in kinds.items():
        write(arguments.directory, name, shuffled(documents, 40_000), arguments.bytes)


if __name__ == "__main__":
    sys.exit(main())
