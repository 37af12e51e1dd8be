"""--split-sentences against nltk's Punkt with a model that its own trainer learns here."""
import json
import random
import sys

import pytest

from preprocess_peer import SPECIAL, BertPeer, assert_same_pairs, cairn_preprocess, preprocess, write_jsonl

punkt = pytest.importorskip("nltk.tokenize.punkt")
if "nltk.redos" in sys.modules:
    sys.modules["nltk.redos"].DEFAULT_TIMEOUT = None  # no text here is hostile, and the machine may be busy

pytestmark = pytest.mark.interop

NAMES = "Smith Bach Miller O'Neil Müller Öz Éva Иванов Ωmega".split()
WORDS = (
    "the checkpoint was written at and it of reads every rank in order to be sure that nothing is lost when a disk "
    "fails however they wait for storage which costs time straße naïve über он сказал что 中文 x² Ⅳ _id"
).split()
ABBREVIATIONS = "Dr. Mr. e.g. i.e. etc. approx. vs. U.S. a.m. St. Inc. No. z.B. т.е. Ph.D. co-op. J. S. é.".split()
NUMBERS = "1 1. 3.14 1,000 -5. 1995. 12.-14. .5 ٣. ²".split()
ENDS = [
    ".",
    ".",
    ".",
    ".",
    "!",
    "?",
    "...",
    "?!",
    "!!!",
    ". . .",
    "…",
    ".)",
    '."',
    ".”",
    "!»",
    ".'",
    ".--",
    "。",
    ".,",
    ";",
]
BLANKS = [" ", " ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\u00a0", "\u2003", "\r\n", "\x1c", "\x0b", ""]


def prose(rng, sentences):
    out = []
    for _ in range(sentences):
        words = []
        for _ in range(rng.randrange(1, 14)):
            roll = rng.random()
            source = (ABBREVIATIONS if roll < 0.15 else NUMBERS if roll < 0.22 else NAMES if roll < 0.32 else WORDS)
            word = rng.choice(source)
            roll = rng.random()
            if roll < 0.04:
                word = rng.choice("([{\"'“‘«`-#&*@") + word
            elif roll < 0.12:
                word += rng.choice(",;:)]}\"'”’»-%")
            elif roll < 0.14:
                word += rng.choice(["--", "---", "..", "-", "/"]) + rng.choice(WORDS)
            words.append(word)
        if rng.random() < 0.1:
            words.insert(rng.randrange(len(words) + 1), "J. Bach")
        if rng.random() < 0.3:
            words.insert(0, rng.choice(["Otherwise", "Then", "Yet"]))
        words[0] = words[0][:1].upper() + words[0][1:] if rng.random() < 0.9 else words[0]
        line = ""
        for word in words:
            line += word + (rng.choice(BLANKS) if rng.random() < 0.1 else " ")
        out.append(line[:-1] + rng.choice(ENDS) + rng.choice(BLANKS))
    return "".join(out)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Returns (directory in punkt_tab's format, nltk's tokenizer) of one training."""
    rng = random.Random(17)
    trainer = punkt.PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    # There are tidy sentences beside the wild ones, from which alone no word would be seen to begin sentences.
    tidy = " ".join(" ".join([rng.choice(["Otherwise", "Then", "Yet"]), *(rng.choice(WORDS) for _ in range(6))]) + "."
                    for _ in range(2000))
    trainer.train(prose(rng, 2000) + tidy, verbose=False)
    params = trainer.get_params()
    assert params.abbrev_types and params.sent_starters and params.collocations and params.ortho_context
    path = tmp_path_factory.mktemp("punkt_tab")
    tab = {"abbrev_types.txt": params.abbrev_types, "sent_starters.txt": params.sent_starters,
           "collocations.tab": ["\t".join(pair) for pair in params.collocations],
           "ortho_context.tab": [f"{word}\t{bits}" for word, bits in params.ortho_context.items()]}
    for name, lines in tab.items():
        (path / name).write_text("\n".join(lines), encoding="utf-8")
    return path, punkt.PunktSentenceTokenizer(params)


@pytest.fixture
def vocab(tmp_path):
    """Makes a vocabulary of every character of the text, so that the tokens tell where a sentence began."""
    path = tmp_path / "vocab.txt"
    characters = sorted({c for text in (*NAMES, *WORDS, *ABBREVIATIONS, *NUMBERS, *ENDS, "([{\"'“‘«`#&*@,;:)]}”’»-%/")
                         for form in (text, text.capitalize()) for c in form if not c.isspace()})
    path.write_text("\n".join(SPECIAL + characters + ["##" + c for c in characters]) + "\n", encoding="utf-8")
    return path


def run(tmp_path, vocab, records, splitter, *flags):
    source = write_jsonl(tmp_path / "in.jsonl", records)
    preprocess([source], tmp_path / "peer", BertPeer(vocab, False), splitter=splitter, append_eod=True)
    done = cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                            "BertWordPieceCase", "--vocab-file", vocab, "--split-sentences", "--append-eod", *flags)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours", level="sentence")
    return done


@pytest.mark.parametrize("seed", range(5))
def test_punkt(tmp_path, model, vocab, seed):
    path, tokenizer = model
    rng = random.Random(seed)
    records = [{"text": prose(rng, rng.randrange(0, 25))} for _ in range(400)]
    records += [
        {"text": t}
        for t in (
            "",
            " ",
            ".",
            ". ",
            "...",
            ". . . a",
            ". . .",
            "a.b. c",
            " .a",
            "x.)",
            "\n",
            "?!?! !",
            'a. " b',
            'a."\'" --b',
            ".\u2028.",
            "x . . . . y. Z",
        )
    ]
    done = run(tmp_path, vocab, records, tokenizer.tokenize, "--punkt-model", path, "--workers", 2)
    assert f"sentences: Punkt, {path}" in done.stdout
    counts = sum(len(tokenizer.tokenize(record["text"])) for record in records)
    assert counts > 2 * len(records), "the text has sentences to find"


def test_long_texts_are_cut_at_a_million_characters(tmp_path, model, vocab):
    path, tokenizer = model
    rng = random.Random(9)
    text = prose(rng, 26000)
    assert len(text) > 1000000
    run(tmp_path, vocab, [{"text": text}, {"text": "é" * 999999 + ". A. B"}], tokenizer.tokenize, "--punkt-model", path)


def test_random_characters(tmp_path, model, vocab):
    """The text is no prose: every rule of the scanner meets every other."""
    path, tokenizer = model
    rng = random.Random(11)
    alphabet = list("aAbB1.?!,;:-\"')]}([{ \n\t") + ["\u00a0", "“", "”", "«", "»", "é", "中", "Dr", "etc"]
    records = [{"text": "".join(rng.choice(alphabet) for _ in range(rng.randrange(60)))} for _ in range(8000)]
    run(tmp_path, vocab, records, tokenizer.tokenize, "--punkt-model", path)


def test_a_wrong_model_is_seen(tmp_path, model, vocab):
    """The comparison can fail: without its abbreviations, the model cuts elsewhere."""
    path, tokenizer = model
    other = tmp_path / "other"
    other.mkdir()
    for file in path.iterdir():
        (other / file.name).write_bytes(b"" if file.name == "abbrev_types.txt" else file.read_bytes())
    with pytest.raises(AssertionError, match="expected"):
        run(tmp_path, vocab, [{"text": prose(random.Random(3), 200)}], tokenizer.tokenize, "--punkt-model", other)


def test_without_a_model_icu_cuts_and_the_output_says_so(tmp_path, vocab):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "the disk fails. A rank waits."}, {"text": ""}])
    arguments = ("--input", source, "--output-prefix", tmp_path / "p", "--tokenizer-type", "BertWordPieceCase",
                 "--vocab-file", vocab, "--split-sentences")
    assert "sentences: ICU" in cairn_preprocess(*arguments).stdout
    report = json.loads(cairn_preprocess("--format=json", *arguments).stdout)
    assert report["sentences"].startswith("ICU") and report["outputs"][0]["sequences"] == 2
    assert report["outputs"][0]["prefix"].endswith("p_text_sentence")


def test_faults(tmp_path, vocab, model):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": ["a list", "of sentences"]}])
    common = ("--input", source, "--output-prefix", tmp_path / "p", "--tokenizer-type", "BertWordPieceCase",
              "--vocab-file", vocab)
    done = cairn_preprocess(*common, "--split-sentences", "--punkt-model", model[0], check=False)
    assert done.returncode == 1 and "BAD_JSON_LINE" in done.stderr and "line 1" in done.stderr
    done = cairn_preprocess(*common, "--split-sentences", "--punkt-model", tmp_path, check=False)
    assert done.returncode == 1 and "INPUT_UNREADABLE" in done.stderr and "abbrev_types.txt" in done.stderr
    assert not list(tmp_path.glob("p_*"))
