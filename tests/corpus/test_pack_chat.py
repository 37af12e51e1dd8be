"""`cairn corpus pack --chat` against transformers' apply_chat_template: the tokens of each conversation and the mask of
its answers, for templates of known families. What is packed of them is as in test_pack_pairs.py."""
import json
import random
import struct
import subprocess
import sys

import pytest
from chat_templates import TEMPLATES
from sft_peer import ROOT, corpus, make_tokenizer, prepare, read_packs, words

pytest.importorskip("pyarrow")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.interop
PACK = 400
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks <up>", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}}}}}]


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)


def conversation(rng):
    """A line, and the messages that templates get."""
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": words(rng, 4)})
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": rng.choice(["", " ", "\n"]) + words(rng, rng.randrange(8))})
        answer = {"role": "assistant", "content": rng.choice(["", "\n\n", " "]) + words(rng, rng.randrange(12)) +
                  rng.choice(["", "\n", " ", "🙂", "a</think>b"])}
        if rng.random() < 0.2:
            answer[rng.choice(["reasoning", "reasoning_content", "thinking"])] = words(rng, 3)
        if rng.random() < 0.2:
            answer["tool_calls"] = [{"function": {"name": "look", "arguments": {"what": words(rng, 1)}}}]
        if rng.random() < 0.05:
            messages.append({"role": rng.choice(["tool", "user"]), "content": "x"})
        messages.append(answer)
    record = {"messages": messages}
    if rng.random() < 0.2:
        record["tools"] = TOOLS
    given = json.loads(json.dumps(record))
    kind = rng.random()
    if kind < 0.1 and all(set(message) == {"role", "content"} for message in messages):
        names = {"user": "Human", "assistant": "gpt"}
        given["conversations"] = [{"from": names.get(m["role"], m["role"]), "value": m["content"]} for m in messages]
        del given["messages"]
    elif kind < 0.2:
        given["conversation"] = given.pop("messages")
    elif kind < 0.3:
        for message in given["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    elif kind < 0.4 and messages[0]["role"] == "system":
        given["system"] = given["messages"].pop(0)["content"]
    elif kind < 0.5 and messages[-1]["content"] == "":
        given["messages"][-1]["content"] = None
    return given, record


def expected(tokenizer, record):
    """Nothing if the template refuses the conversation."""
    try:
        found = tokenizer.apply_chat_template(record["messages"], tools=record.get("tools"), tokenize=True,
                                              return_dict=True, return_assistant_tokens_mask=True)
    except Exception:  # a template can raise anything
        return None
    never = {token for token in tokenizer.added_tokens_encoder if token in ("<|im_start|>", "<|start_header_id|>")}
    never = {tokenizer.convert_tokens_to_ids(token) for token in never}
    mask = [int(said and token not in never) for token, said in zip(found["input_ids"], found["assistant_masks"])]
    return {"input_ids": found["input_ids"], "loss_mask": mask}


def pack(source, prefix, tokenizer, *more, **options):
    return corpus("pack", "--chat", "--input", source, "--output-prefix", prefix, "--tokenizer-model", tokenizer,
                  "--pack-size", PACK, *more, **options)


def check(tmp_path, tokenizer, seed, *flags, count=300, multiple=1):
    rng = random.Random(seed)
    lines = [conversation(rng) for _ in range(count)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(given, ensure_ascii=rng.random() < 0.5) + "\n"
                                               for given, _ in lines))
    data = [expected(tokenizer, record) for _, record in lines]
    good = [sample for sample in data if sample is not None]
    assert len(good) > count // 3 and sum(sum(sample["loss_mask"]) for sample in good) > 10 * len(good) // 3
    prepare(good, tmp_path / "theirs.idx.parquet", PACK, multiple, tokenizer.eos_token_id, "first_fit_shuffle", 0)
    pack(tmp_path / "in.jsonl", tmp_path / "ours", tokenizer.name_or_path, "--skip-bad-lines", "--pad-multiple",
         multiple, "--workers", 2, *flags)
    told = [json.loads(line) for line in (tmp_path / "ours_bad_lines.log").read_text().splitlines()]
    assert [entry["line"] for entry in told] == [i for i, sample in enumerate(data, 1) if sample is None], told[:3]
    assert read_packs(tmp_path / "ours.idx.parquet") == read_packs(tmp_path / "theirs.idx.parquet")


@pytest.mark.parametrize("family", TEMPLATES)
def test_families_of_templates(tmp_path, family):
    check(tmp_path, make_tokenizer(tmp_path / "tokenizer", TEMPLATES[family]), seed=list(TEMPLATES).index(family))


@pytest.mark.parametrize("kind", ["metaspace", "replaced", "unigram"])
def test_other_kinds_of_tokenizers(tmp_path, kind):
    """Llama 2, Gemma and T5 write blanks as U+2581, and bytes that no token has as <0xNN>."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    text = [f"{words(random.Random(i), 30)}\n" for i in range(50)]
    if kind == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        made.train_from_iterator(text, trainers.UnigramTrainer(vocab_size=330, special_tokens=specials,
                                                               unk_token="<unk>", show_progress=False))
        described = json.loads(made.to_str())
        described["model"]["byte_fallback"] = True
    else:
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        if kind == "metaspace":
            made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        else:
            made.normalizer = normalizers.Replace(" ", "▁")
        made.train_from_iterator(text, trainers.BpeTrainer(vocab_size=400, special_tokens=specials,
                                                           show_progress=False, limit_alphabet=40))
        described = json.loads(made.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if not token["content"].startswith("<0x")]
    made = tokenizers.Tokenizer.from_str(json.dumps(described))
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", bos_token="<s>",
                                                   unk_token="<unk>", chat_template=TEMPLATES["llama-2"])
    wrapped.save_pretrained(tmp_path / "tokenizer")
    check(tmp_path, transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer"), seed=4)


# The answer begins with a piece of text of its own, before which a tokenizer may add a blank.
APART = ("{% for message in messages %}<s>{% if message['role'] == 'assistant' %}{% generation %}"
         "{{ message['content'] }}{% endgeneration %}{% else %}{{ message['content'] }}{% endif %}</s>{% endfor %}")
# The blank before the answer is part of a token of it.
BEHIND_A_BLANK = APART.replace("<s>", "<s> ").replace("{% endgeneration %}", " {% endgeneration %}x")


@pytest.mark.parametrize("template", [APART, BEHIND_A_BLANK, TEMPLATES["vicuna"]], ids=["apart", "blank", "vicuna"])
@pytest.mark.parametrize("kind", ["prefix", "trimmed", "trimmed all", "cut", "strips", "always", "first",
                                  "prepend"])
def test_tokenizers_that_add_a_blank(tmp_path, kind, template):
    """GPT-2's rule with add_prefix_space, and SentencePiece's kind: the blank is in no text, but has a place in it."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    strips = kind == "strips"  # the blanks behind one added token, and those before another
    begin, end = tokenizers.AddedToken("<s>", rstrip=strips), tokenizers.AddedToken("</s>", lstrip=strips)
    specials = ["<unk>", begin, end]
    if kind in ("always", "first", "prepend"):
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        if kind == "prepend":
            made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        else:
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind)
        made.decoder = decoders.Metaspace()
        alphabet = []
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        if kind == "cut":  # each digit is a piece, and gets a blank
            made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), made.pre_tokenizer])
        if kind.startswith("trimmed"):
            made.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=kind == "trimmed")
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([f"{words(random.Random(i), 30)}\n" for i in range(50)], trainers.BpeTrainer(
        vocab_size=450, special_tokens=specials, show_progress=False, limit_alphabet=300, initial_alphabet=alphabet))
    described = json.loads(made.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if not token["content"].startswith("<0x")]
    made = tokenizers.Tokenizer.from_str(json.dumps(described))
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, bos_token=begin,
                                                   chat_template=template)
    wrapped.save_pretrained(tmp_path / "tokenizer")
    kept = json.loads((tmp_path / "tokenizer/tokenizer.json").read_text())["added_tokens"]
    assert {token["content"] for token in kept if token["rstrip"] or token["lstrip"]} == (
        {"<s>", "</s>"} if strips else set())
    check(tmp_path, transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer"), seed=5)


def test_padding_and_a_template_of_a_file(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    tokenizer.chat_template = TEMPLATES["vicuna"]
    (tmp_path / "vicuna.jinja").write_text(TEMPLATES["vicuna"])
    check(tmp_path, tokenizer, 1, "--chat-template", tmp_path / "vicuna.jinja", multiple=16)


def test_a_model_with_several_templates(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    config = json.loads((tmp_path / "tokenizer/tokenizer_config.json").read_text())
    (tmp_path / "tokenizer/chat_template.jinja").unlink(missing_ok=True)
    config["chat_template"] = [{"name": "default", "template": TEMPLATES["chatml"]},
                               {"name": "tool_use", "template": TEMPLATES["qwen"]}]
    (tmp_path / "tokenizer/tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert isinstance(tokenizer.chat_template, dict)
    check(tmp_path, tokenizer, 2)


def test_the_mask_by_hand(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    (tmp_path / "in.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "ask me"},
                                                                {"role": "assistant", "content": "tell you"}]}))
    pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer")
    (row,) = read_packs(tmp_path / "out.idx.parquet")
    said = [token for token, trained in zip(row["input_ids"][1:], row["loss_mask"]) if trained]
    assert tokenizer.decode(row["input_ids"]) == (
        "<|im_start|>user\nask me<|im_end|>\n<|im_start|>assistant\ntell you<|im_end|>\n")
    assert tokenizer.decode(said) == "tell you<|im_end|>"


BAD = {
    "no template": (None, "BAD_TOKENIZER", "has no chat template"),
    "no generation": ("{{ messages[0].content }}", "UNSUPPORTED", "does not say which text is an answer"),
    "syntax": ("{% generation %}{% for %}", "BAD_TOKENIZER", "line 1 of the chat template"),
    "memory": ("{% generation %}{{ 'x' * 3000000000 }}{% endgeneration %}", "MEMORY_LIMIT", "more than 2 GiB"),
    "way out": ("{% generation %}{{ lipsum.__globals__['os'].popen('touch ESCAPED').read() }}{% endgeneration %}",
                "BAD_TOKENIZER", "does what is not allowed"),
    "classes": ("{% generation %}{{ ''.__class__.__mro__ }}{% endgeneration %}", "BAD_TOKENIZER", "not allowed"),
    "hidden": ("{% set ns = namespace(_a=1) %}{% generation %}{% endgeneration %}", "BAD_TOKENIZER", "not allowed"),
    "changes": ("{% generation %}{{ messages.append(1) }}{% endgeneration %}", "BAD_TOKENIZER", "not allowed"),
    "exception": ("{% generation %}{% endgeneration %}{{ raise_exception('not so') }}", "BAD_JSON_LINE", "not so"),
    "file": ("{% generation %}{% include '/etc/passwd' %}{% endgeneration %}", "BAD_JSON_LINE", "refuses it"),
    "elsewhere": ("{% set x %}{% generation %}some text{% endgeneration %}{% endset %}h\u00e9", "BAD_JSON_LINE",
                  "where it does not write it"),
    "depth": ("{%if 1%}" * 3000 + "{% generation %}" + "{%endif%}" * 3000, "BAD_TOKENIZER", "nested too deeply"),
    "division": ("{% generation %}{{ 1 / 0 }}{% endgeneration %}", "BAD_JSON_LINE", "division by zero"),
    "loop": ("{% generation %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
             "{% endgeneration %}", "INPUT_UNREADABLE", "ended by signal 24"),
    "number": ("{% generation %}{{ 7 ** (7 ** 9) }}{% endgeneration %}", "INPUT_UNREADABLE", "ended by signal 24"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_templates_are_refused_within_bounds(tmp_path, name):
    template, reason, message = BAD[name]
    make_tokenizer(tmp_path / "tokenizer", template)
    (tmp_path / "in.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    done = pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", "--workers", 1, expect=1, cwd=tmp_path)
    assert f"error: {reason}: " in done.stderr and message in done.stderr, done.stderr
    assert "next: " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "tokenizer"]


def test_a_template_that_is_too_large_is_not_blamed_on_a_line():
    """The program of the renderer, with less memory."""
    frames = (ROOT / "corpus/io/python_frames.py").read_text()
    assert "MOST_MEMORY = 2 << 30" in frames
    program = frames.replace("MOST_MEMORY = 2 << 30", "MOST_MEMORY = 64 << 20")
    program += (ROOT / "corpus/sft/chat_renderer.py").read_text()
    template = "{% generation %}{% endgeneration %}" + "x" * 50_000_000
    given = json.dumps({"tokenizer_config.json": "", "special_tokens_map.json": "",
                        "chat_template.jinja": template}).encode()
    done = subprocess.run([sys.executable, "-c", program], input=struct.pack("<cI", b"O", len(given)) + given,
                          capture_output=True, timeout=60)
    assert done.stdout[:1] == b"E", (done.stdout, done.stderr)
    told = json.loads(done.stdout[5:])
    assert told["reason"] == "MEMORY_LIMIT" and told["message"].startswith("the chat template itself needs"), told
    assert told["next"] == "Give a smaller template."


def test_a_conversation_with_many_answers_takes_no_more_time_than_its_length(tmp_path):
    """Each line has 10 s. Work that grows with the square of the answers would take longer."""
    make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    turns = [{"role": role, "content": text} for _ in range(40_000) for role, text in (("user", "a"),
                                                                                       ("assistant", "\u00e9"))]
    (tmp_path / "in.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    corpus("pack", "--chat", "--input", tmp_path / "in.jsonl", "--output-prefix", tmp_path / "out",
           "--tokenizer-model", tmp_path / "tokenizer", "--pack-size", 4_000_000)
    (row,) = read_packs(tmp_path / "out.idx.parquet")
    assert sum(row["loss_mask"]) >= 80_000


def test_bad_lines_are_named(tmp_path):
    make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    good = {"messages": [{"role": "user", "content": "a"}]}
    lines = [good, {"text": "a"}, {"messages": "a"}, {"messages": [1]}, {"messages": [{"role": "user"}]}, [1],
             {**good, "tools": 1}, {**good, "chat_template_kwargs": 1},
             {**good, "chat_template_kwargs": {"add_generation_prompt": True}},
             {"messages": [{"role": "user", "content": "\ud800"}]},
             {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "x"}}]}]},
             {**good, "chat_template_kwargs": {"more": True}}]
    texts = [json.dumps(line) for line in lines] + ["", "no JSON", "[" * 100000, '{"messages": NaN}', '"\xff"']
    (tmp_path / "in.jsonl").write_bytes("\n".join(texts).encode("latin-1"))
    pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", "--skip-bad-lines")
    told = [json.loads(line) for line in (tmp_path / "out_bad_lines.log").read_text().splitlines()]
    assert [entry["line"] for entry in told] == [*range(2, 12), *range(13, 18)]
    assert "'messages', 'conversation' and 'conversations'" in told[0]["cause"]
    assert "it is no JSON" in told[-4]["cause"]
    (row,) = read_packs(tmp_path / "out.idx.parquet")
    assert len(row["seq_start_id"]) == 2


def test_what_is_missing_is_told(tmp_path, monkeypatch):
    make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    (tmp_path / "in.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    monkeypatch.setenv("CAIRN_PYTHON", str(bare))
    done = pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", expect=1)
    assert "UNSUPPORTED" in done.stderr and "cannot load jinja2, which renders chat templates" in done.stderr
    assert "-m pip install jinja2" in done.stderr and "CAIRN_PYTHON" in done.stderr
    monkeypatch.setenv("CAIRN_PYTHON", str(tmp_path / "none"))
    done = pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", expect=1)
    assert "UNSUPPORTED" in done.stderr and f"{tmp_path}/none, which " in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))


def test_a_tokenizer_whose_tokens_are_no_pieces_of_text_is_refused(tmp_path):
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, chat_template=TEMPLATES["chatml"])
    wrapped.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "in.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    done = pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", expect=1)
    assert "UNSUPPORTED" in done.stderr and "WordPiece" in done.stderr, done.stderr


def test_a_text_that_the_tokenizer_changes_is_a_bad_line(tmp_path):
    """Its answers are not found among the tokens, and a guess would train on the wrong ones."""
    import tokenizers

    make_tokenizer(tmp_path / "tokenizer", TEMPLATES["chatml"])
    path = tmp_path / "tokenizer/tokenizer.json"
    made = tokenizers.Tokenizer.from_file(str(path))
    made.normalizer = tokenizers.normalizers.NFC()
    made.save(str(path))
    lines = ["u\u0308ber", "\u00fcber"]
    (tmp_path / "in.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "assistant", "content": line}]}) + "\n" for line in lines))
    pack(tmp_path / "in.jsonl", tmp_path / "out", tmp_path / "tokenizer", "--skip-bad-lines")
    (told,) = [json.loads(line) for line in (tmp_path / "out_bad_lines.log").read_text().splitlines()]
    assert told["line"] == 1 and "the tokenizer has changed the text from byte" in told["cause"]
