"""`cairn corpus bpe train --group`: parity-aware BPE, against tokenizers' ParityBpeTrainer and a slow oracle."""
import collections
import itertools
import json

import pytest
import regex
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.trainers import ParityBpeTrainer

from bpe_testing import EXHAUSTIVE, cairn, multilingual_text, rng, to_bytes, train

pytestmark = pytest.mark.interop

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def language(name, words, seed):
    """Returns text of one language of the generator of multilingual text."""
    r = rng(f"{name} {seed}")
    make = multilingual_text.syllable_maker(multilingual_text.SYLLABLES[name])
    lexicon = multilingual_text.Lexicon(r, make, 300)
    drawn = lexicon.draw(r, words, fresh=0.02)
    ends = r.choices([" ", " ", " ", " ", ", ", ".\n", " 12 "], k=words)
    return "".join(itertools.chain.from_iterable(zip(drawn, ends)))


LANGUAGES = {"english": 3000, "hindi": 700, "russian": 1500, "greek": 300}


def write(tmp_path, texts, kind):
    flags = []
    for name, text in texts.items():
        (tmp_path / f"{kind}-{name}").write_text(text)
        flags += [f"--{kind}", f"{name}={tmp_path / f'{kind}-{name}'}"]
    return flags


def lines(text):
    return [line for line in regex.split(r"(?<=\n)", text) if line]


def peer(groups, development=None, specials=(), **options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = ParityBpeTrainer(
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        **options,
    )
    trainer.train_from_iterator(
        tokenizer,
        train_iterators=[lines(text) for text in groups.values()],
        dev_iterators=[lines(text) for text in development.values()] if development else None,
    )
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def train_groups(tmp_path, size, *flags):
    return train([], tmp_path / "out", size, "--by-line", *flags)


CASES = {
    "by training text": ([], {}),
    "by development text": (["development"], {}),
    "ratio": (["--ratio=english=1", "--ratio=hindi=2.57", "--ratio=russian=1.8", "--ratio=greek=1.75"],
              {"ratio": [1, 2.57, 1.8, 1.75]}),
    "window": (["development", "--window=20", "--alpha=1.5"], {"variant": "window", "window_size": 20, "alpha": 1.5}),
    "tight window": (["development", "--window=7", "--alpha=0.5"],
                     {"variant": "window", "window_size": 7, "alpha": 0.5}),
    "window and ratio": (
        ["--window=30", "--ratio=english=3", "--ratio=hindi=1", "--ratio=russian=1", "--ratio=greek=1"],
        {"variant": "window", "window_size": 30, "ratio": [3, 1, 1, 1]}),
    "hybrid": (["development", "--global-merges=150"], {"global_merges": 150}),
    "hybrid window": (["--global-merges=77", "--window=100"], {"global_merges": 77, "variant": "window"}),
    "frequent": (["development", "--min-frequency=3"], {"min_frequency": 3}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(10 if EXHAUSTIVE else 1))
def test_groups_give_the_merges_of_hugging_faces_parity_trainer(tmp_path, case, seed):
    """No group is exhausted here: with a window the peer would then never end."""
    flags, options = CASES[case]
    texts = {name: language(name, words, seed) for name, words in LANGUAGES.items()}
    development = {name: language(name, 400, seed + 50) for name in LANGUAGES} if "development" in flags else None
    flags = [flag for flag in flags if flag.startswith("--")]
    flags += write(tmp_path, texts, "group") + (write(tmp_path, development, "development") if development else [])
    flags += ["--tie-break", "huggingface", "--special-token", "<|endoftext|>"]
    vocab, merges = train_groups(tmp_path, 750, *flags)
    assert len(vocab) == 750
    # It counts merges, of which two may make the same token.
    for count in range(len(merges), len(merges) + 5):
        theirs = peer(texts, development, ["<|endoftext|>"], num_merges=count, **options)
        if len(theirs[0]) == len(vocab):
            break
    assert merges == theirs[1]
    assert vocab == theirs[0]


@pytest.mark.parametrize("seed", range(40 if EXHAUSTIVE else 6))
def test_exhausted_groups_of_ambiguous_words(tmp_path, seed):
    """Tokens that two paths lead to, ties everywhere; all pairs of a group merge long before those of another."""
    r = rng(seed)
    texts = {}
    for name, letters, words in (("a", "ab", 40), ("b", "abc", 10), ("c", "cd=", 80)):
        some = ["".join(r.choices(letters, k=r.randrange(1, 14))) for _ in range(words)]
        texts[name] = " ".join(r.choices(some, k=2 * words))
    flags = write(tmp_path, texts, "group")
    vocab, merges = train_groups(tmp_path, 5000, "--tie-break", "huggingface", *flags)
    assert (vocab, merges) == peer(texts, num_merges=5000)
    # Several threads and shards change nothing.
    assert train_groups(tmp_path, 5000, "--tie-break", "huggingface", "--threads", 5, *flags) == (vocab, merges)


def counted(text):
    counts = collections.Counter()
    for line in lines(text):
        counts.update(m.group().encode() for m in regex.finditer(GPT2, line))
    return [([word[i : i + 1] for i in range(len(word))], count) for word, count in counts.items()]


def merge(words, pair):
    for parts, _ in words:
        i = 0
        while i < len(parts) - 1:
            if (parts[i], parts[i + 1]) == pair:
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            i += 1


def oracle(texts, development, wanted, window=0, alpha=2.0, ratios=None, together=0):
    """Counts all pairs and lengths anew for every merge."""
    groups = [counted(text) for text in texts.values()]
    measured = [counted(text) for text in development.values()] if development else groups
    length = lambda words: sum(len(parts) * count for parts, count in words)
    first = [length(words) for words in measured]
    merges, turns, exhausted = [], [], set()
    while len(merges) < wanted:
        need = [length(words) for words in measured]
        if ratios:
            need = [-(a / b) / ratio for a, b, ratio in zip(first, need, ratios)]
        order = sorted(set(range(len(groups))) - exhausted, key=lambda g: -need[g])
        if not order:
            break
        if len(merges) < together:
            words = itertools.chain.from_iterable(groups)
        else:
            ready = [g for g in order if not window or turns[-window:].count(g) / window <= alpha / len(groups)]
            turn = ready[0] if ready else order[-1]
            turns.append(turn)
            words = groups[turn]
        pairs = collections.Counter()
        for parts, count in words:
            for pair in itertools.pairwise(parts):
                pairs[pair] += count
        if not pairs:
            exhausted.add(turn)
            continue
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        for some in groups + (measured if development else []):
            merge(some, merges[-1])
    return merges


@pytest.mark.parametrize("options", [
    {}, {"window": 12, "alpha": 1.2}, {"ratios": [1, 2, 3]}, {"together": 40, "window": 5},
])
@pytest.mark.parametrize("with_development", [False, True])
def test_ties_by_bytes_follow_the_slow_oracle(tmp_path, options, with_development):
    if with_development and "ratios" in options:
        return
    texts = {name: language(name, words, 3) for name, words in (("english", 250), ("hindi", 60), ("korean", 40))}
    development = {name: language(name, 40, 9) for name in texts} if with_development else None
    flags = write(tmp_path, texts, "group") + (write(tmp_path, development, "development") if development else [])
    names = {"window": "--window", "alpha": "--alpha", "together": "--global-merges"}
    flags += [f"{names[key]}={value}" for key, value in options.items() if key in names]
    for name, ratio in zip(texts, options.get("ratios", [])):
        flags.append(f"--ratio={name}={ratio}")
    _, merges = train_groups(tmp_path, 256 + 150, *flags)
    expected = oracle(texts, development, 150, **options)
    assert [(to_bytes(a), to_bytes(b)) for a, b in merges] == expected
    # The choice matters here.
    together = "".join(texts.values())
    (tmp_path / "all").write_text(together)
    assert train(tmp_path / "all", tmp_path / "plain", 256 + 150, "--by-line")[1] != merges


def test_groups_become_more_even(tmp_path):
    # Hindi's words cannot become as few tokens, because GPT-2's rule cuts them at their marks.
    texts = {name: language(name, 20 * LANGUAGES[name], 4) for name in ("english", "russian", "greek")}
    development = {name: language(name, 500, 4) for name in texts}
    flags = write(tmp_path, texts, "group") + write(tmp_path, development, "development")
    train_groups(tmp_path, 1500, *flags)
    (tmp_path / "all").write_text("".join(texts.values()))
    train(tmp_path / "all", tmp_path / "plain", 1500, "--by-line")
    spread = {}
    for directory in ("out", "plain"):
        tokenizer = Tokenizer.from_file(str(tmp_path / directory / "tokenizer.json"))
        counts = [len(tokenizer.encode(text).ids) for text in development.values()]
        spread[directory] = max(counts) / min(counts)
    assert spread["out"] < 1.02 < 1.2 < spread["plain"]


def test_a_group_may_have_several_files_of_any_kind_and_continue_a_vocabulary(tmp_path):
    texts = {name: language(name, 400, 6) for name in ("english", "greek")}
    for name, text in texts.items():
        documents = [{"text": line} for line in lines(text)]
        (tmp_path / name).mkdir()
        for i in range(2):
            half = documents[i::2]
            (tmp_path / name / f"{i}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in half))
    base = ["--vocab-size", 700]
    plain = write(tmp_path, texts, "group")
    expected = train([], tmp_path / "plain", 700, "--by-line", *plain)
    directories = [f"--group={name}={tmp_path / name}" for name in texts]
    assert train([], tmp_path / "json", 700, *directories) == expected
    several = [f"--group={name}={tmp_path / name / f'{i}.jsonl'}" for i in range(2) for name in texts]
    assert train([], tmp_path / "several", 700, *several) == expected
    # Its first merges, done first, leave the words as they were when it had made them.
    train([], tmp_path / "small", 500, "--by-line", *plain)
    assert train([], tmp_path / "larger", 700, "--by-line", "--extend", tmp_path / "small", *plain) == expected
    # With --resume the counts of each group are kept apart, and nothing is left.
    resumed = ["--resume", "--checkpoint-every", "2KB"]
    assert train([], tmp_path / "resumed", 700, "--by-line", *resumed, *plain) == expected
    assert not (tmp_path / "resumed" / ".bpe-count").exists()
    assert cairn("train", *base, "--output", tmp_path / "o", "--by-line", *directories).returncode == 1


def test_what_does_not_fit_together_is_refused(tmp_path):
    (tmp_path / "a").write_text("some text")
    (tmp_path / "a.jsonl").write_text("{}")
    a = tmp_path / "a"
    base = ["train", "--vocab-size", 300, "--output", tmp_path / "out"]
    for flags, words in (
        ([a, "--group", f"x={a}"], "either"),
        ([], "either"),
        (["--group", a], "NAME=VALUE"),
        (["--group", f"={a}"], "NAME=VALUE"),
        (["--group", f"x={a}", "--development", f"y={a}"], "no --group has this name"),
        (["--group", f"x={a}", "--group", f"y={a}", "--development", f"y={a}"], "x has no development text"),
        (["--group", f"x={a}", "--ratio", "x=0"], "no positive number"),
        (["--group", f"x={a}", "--ratio", "x=nan"], "no positive number"),
        (["--group", f"x={a}", "--window", 3, "--alpha", "-1"], "no positive number"),
        (["--group", f"x={a}", "--group", f"y={a}", "--ratio", "x=1"], "not all groups have a ratio"),
        (["--group", f"x={a}", "--development", f"x={a}", "--ratio", "x=1"], "without development text"),
        (["--group", f"x={a}", "--group", f"y={a}.jsonl"], "JSON lines"),
    ):
        result = cairn(*base, *flags)
        assert result.returncode in (1, 2) and b"BAD_REQUEST" in result.stderr, (flags, result.stderr)
        assert words in result.stderr.decode(), result.stderr
    assert not (tmp_path / "out").exists()
