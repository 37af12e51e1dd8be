"""`cairn corpus bpe train --superwords-from`: the second stage of SuperBPE, against slow oracles and Hugging Face."""
import collections
import heapq
import itertools

import pytest
import regex
from tokenizers import Tokenizer

from bpe_testing import (
    BYTE_TO_UNICODE,
    EXHAUSTIVE,
    any_text,
    cairn,
    encode,
    from_bytes,
    load,
    multilingual,
    random_text,
    rng,
    to_bytes,
    train,
)

pytestmark = pytest.mark.interop

# What the authors' scripts give to their trainer, and what that refuses: tokens with these, as it writes them.
PATTERN = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"


def refuses(token):
    text = from_bytes(token)
    return ":Ġ" in text or sum(1 for word in text.split("Ġ") if word) > 4


def phrases(seed, lines):
    """Returns text in which the same words often stand together, as in natural text."""
    r = rng(seed)
    words = [w for w in multilingual(6000, seed).split() if len(w) < 12][:150]
    sentences = [" ".join(r.choices(words, k=r.randint(2, 7))) for _ in range(40)]
    ends = [". ", ", ", ": ", "; ", " (", ") ", "!! ", " 2024 ", "\t", "  ", " -- ", "'s ", ":", "\n", "\n", "\n"]
    return "".join(
        r.choice(sentences[: r.choice((3, 10, 40))]) + r.choice(ends) for _ in range(lines)
    )


def pieces(line):
    """Cuts as Hugging Face's Split does when it isolates: what is between two matches is a piece too."""
    at = 0
    for match in regex.finditer(PATTERN, line):
        yield line[at : match.start()]
        yield match.group()
        at = match.end()
    yield line[at:]


def merged(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def words_of(text, inherited):
    counts = collections.Counter()
    for line in text.splitlines(keepends=True):
        counts.update(piece.encode() for piece in pieces(line) if piece)
    words = [[word[i : i + 1] for i in range(len(word))] for word in counts]
    for pair in inherited:
        words = [merged(parts, pair) for parts in words]
    return words, list(counts.values())


def oracle_by_bytes(text, inherited, wanted, refused):
    """Counts all pairs anew for every merge, and takes the greatest pair of byte strings among equal ones."""
    words, counts = words_of(text, inherited)
    merges = list(inherited)
    while len(merges) < wanted:
        pairs = collections.Counter()
        for parts, count in zip(words, counts):
            for pair in itertools.pairwise(parts):
                pairs[pair] += count
        pairs = {pair: count for pair, count in pairs.items() if not refused(pair[0] + pair[1])}
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [merged(parts, best) for parts in words]
    return merges


def oracle_as_hugging_face(text, inherited, tokens, refused):
    """The authors' do_train_extend, step 6: a queue of pairs, each with the words where it came into being."""
    words, counts = words_of(text, inherited)
    ids = {bytes([b]): i for i, b in enumerate(sorted(range(256), key=lambda b: BYTE_TO_UNICODE[b]))}
    for a, b in inherited:
        ids.setdefault(a + b, len(ids))
    pair_counts, where, queue, merges = collections.Counter(), collections.defaultdict(set), [], list(inherited)

    def enqueue():
        for pair, places in where.items():
            if pair_counts[pair] > 0:
                heapq.heappush(queue, (-pair_counts[pair], ids[pair[0]], ids[pair[1]], next(order), pair, places))
        where.clear()

    order = itertools.count()
    for i, parts in enumerate(words):
        for pair in itertools.pairwise(parts):
            pair_counts[pair] += counts[i]
            where[pair].add(i)
    enqueue()
    while len(ids) < tokens and queue:
        negative, left, right, _, pair, places = heapq.heappop(queue)
        if -negative != pair_counts[pair]:
            heapq.heappush(queue, (-pair_counts[pair], left, right, next(order), pair, places))
            continue
        if pair_counts[pair] < 1:
            break
        token = pair[0] + pair[1]
        if refused(token):
            continue
        ids.setdefault(token, len(ids))
        merges.append(pair)
        for i in places:
            before, after = words[i], merged(words[i], pair)
            if len(before) == len(after):
                continue
            old, new = collections.Counter(itertools.pairwise(before)), collections.Counter(itertools.pairwise(after))
            for one in old | new:
                pair_counts[one] += (new[one] - old[one]) * counts[i]
            for one in new:
                if token in one:
                    where[one].add(i)
            words[i] = after
        enqueue()
    # A pair that merged twice counts at its later place.
    return list(dict.fromkeys(reversed(merges)))[::-1]


def first_stage(tmp_path, text, size, *flags):
    (tmp_path / "text").write_bytes(text.encode())
    train(tmp_path / "text", tmp_path / "first", size, "--by-line", *flags)
    return [(to_bytes(a), to_bytes(b)) for a, b in load(tmp_path / "first")[1]]


@pytest.mark.parametrize("seed", range(20 if EXHAUSTIVE else 3))
def test_superwords_are_those_of_the_slow_oracle(tmp_path, seed):
    text = phrases(seed, 250)
    inherited = first_stage(tmp_path, text, 420)
    flags = ["--by-line", "--superwords-from", tmp_path / "first"]
    _, merges = train(tmp_path / "text", tmp_path / "out", 700, *flags)
    ours = [(to_bytes(a), to_bytes(b)) for a, b in merges]
    assert ours == oracle_by_bytes(text, inherited, 700 - 256, refuses)
    made = [a + b for a, b in ours]
    assert sum(1 for token in made if b" " in token[1:]) > 20  # there are superwords
    assert not any(refuses(token) for token in made)
    # Each of the two default rules refuses something here.
    for rule in (r"[^ ]( +[^ ]+){4}", ": "):
        assert train(tmp_path / "text", tmp_path / "one", 1500, *flags, "--veto", rule) != train(
            tmp_path / "text", tmp_path / "two", 1500, *flags
        )


@pytest.mark.parametrize("seed", range(20 if EXHAUSTIVE else 4))
def test_superwords_are_those_of_the_authors_trainer(tmp_path, seed):
    text = phrases(seed + 100, 400)
    flags = ["--tie-break", "huggingface", "--special-token", "<|endoftext|>"]
    inherited = first_stage(tmp_path, text, 450, *flags)
    vocab, merges = train(
        tmp_path / "text", tmp_path / "out", 1200, "--by-line", "--superwords-from", tmp_path / "first", *flags[:2]
    )
    assert [(to_bytes(a), to_bytes(b)) for a, b in merges] == oracle_as_hugging_face(text, inherited, 1199, refuses)
    first, _ = load(tmp_path / "first")
    assert {token: vocab[token] for token in first} == first and len(vocab) > 900


def test_a_veto_of_ones_own_takes_the_place_of_the_default(tmp_path):
    text = phrases(7, 300)
    inherited = first_stage(tmp_path, text, 420)
    flags = ["--by-line", "--superwords-from", tmp_path / "first"]
    for veto in ("[.,:;]", r"\d", "\ufffd"):
        flags += ["--veto", veto]
    _, merges = train(tmp_path / "text", tmp_path / "out", 700, *flags)

    def refused(token):
        return regex.search(r"[.,:;]|\d|\ufffd", token.decode(errors="replace")) is not None

    assert [(to_bytes(a), to_bytes(b)) for a, b in merges] == oracle_by_bytes(text, inherited, 700 - 256, refused)
    bad = cairn("train", tmp_path / "text", "--vocab-size", 700, "--output", tmp_path / "o", "--veto", "(")
    assert bad.returncode == 1 and b"BAD_PATTERN" in bad.stderr


@pytest.mark.parametrize("flags", [[], ["--tie-break", "huggingface"]])
def test_superwords_encode_as_hugging_face_does(tmp_path, flags):
    r = rng(5)
    first_stage(tmp_path, phrases(1, 2000), 600, "--special-token", "<|endoftext|>", *flags)
    train(tmp_path / "text", tmp_path / "out", 2500, "--by-line", "--superwords-from", tmp_path / "first", *flags)
    theirs = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    lines = phrases(1, 300).split("\n") + phrases(2, 300).split("\n")
    lines += [random_text(r, 60).replace("\n", " ") for _ in range(300)]
    lines += [any_text(r, 60).replace("\n", " ") for _ in range(300)]
    lines += [line + "<|endoftext|>" + line[::-1] for line in lines[:50]]
    ids = encode(tmp_path / "out", "".join(line + "\n" for line in lines).encode())
    expected = [theirs.encode(line).ids for line in lines]
    assert ids == expected
    for line, line_ids in zip(lines[:700], ids):
        assert theirs.decode(line_ids, skip_special_tokens=False) == line
    several = {i for token, i in theirs.get_vocab().items() if "Ġ" in token[1:]}
    assert sum(1 for line_ids in ids for i in line_ids if i in several) > 500


def test_superwords_compress_more_than_words_do(tmp_path):
    text = phrases(3, 3000)
    first_stage(tmp_path, text, 500)
    train(tmp_path / "text", tmp_path / "words", 1000, "--by-line", "--extend", tmp_path / "first")
    train(tmp_path / "text", tmp_path / "superwords", 1000, "--by-line", "--superwords-from", tmp_path / "first")
    counts = [sum(map(len, encode(tmp_path / name, text.encode()))) for name in ("words", "superwords")]
    assert counts[1] < 0.9 * counts[0]


def test_both_ways_to_continue_exclude_each_other(tmp_path):
    (tmp_path / "text").write_text("some text")
    train(tmp_path / "text", tmp_path / "first", 257)
    both = ["--extend", tmp_path / "first", "--superwords-from", tmp_path / "first"]
    assert cairn("train", tmp_path / "text", "--vocab-size", 300, "--output", tmp_path / "o", *both).returncode == 2
