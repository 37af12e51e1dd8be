"""Renders conversations by a chat template, as transformers' apply_chat_template does. python_frames.py comes before
this text, and chat_renderer.cc runs both.

The first frame from the other side is O; its content is JSON: the texts of tokenizer_config.json,
special_tokens_map.json and chat_template.jinja, of which some are empty. Each following frame is L, a line of JSON. The
answers are

    R  a conversation; the content is a u32, how many pieces of it are answers, then of each its first byte and that
       behind it as u32, and then all of the text
    B  the line is bad; the content says why
    E  the template has failed, or nothing can be rendered

A template is hostile: it runs in jinja2's sandbox, this process can open no file once it renders, and it has the memory
of python_frames.py and MOST_SECONDS of processor time for each line.
"""
import codecs
import datetime
import re

MOST_SECONDS = 10
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
REASONING = ("reasoning_content", "thinking", "reasoning")
# These are decided by the caller of a template, and not by a line.
CONTROLLED = {"add_generation_prompt", "chat_template", "continue_final_message", "max_length", "messages", "padding",
              "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize", "tools", "truncation"}
ROLES = {"human": "user", "gpt": "assistant"}
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


class BadLine(Exception):
    pass


def load_jinja():
    try:
        # What jinja2 imports when a template asks for it comes first, because no file can be opened later.
        import pprint  # noqa: F401
        import urllib.parse  # noqa: F401

        import jinja2
        import jinja2.constants
        import jinja2.debug
        import jinja2.ext
        import jinja2.sandbox
    except ImportError as error:
        raise Failure("UNSUPPORTED", f"{sys.executable} cannot load jinja2, which renders chat templates: {error}",
                      f"Install it: {sys.executable} -m pip install jinja2. Or name a Python that has it by the "
                      "environment variable CAIRN_PYTHON.") from None
    found = tuple(int(part) for part in re.findall("[0-9]+", jinja2.__version__)[:3])
    if found < (3, 1, 6):
        raise Failure("UNSUPPORTED", f"jinja2 {jinja2.__version__} has known ways out of its sandbox",
                      f"Install a newer one: {sys.executable} -m pip install -U jinja2")
    return jinja2


def compile_template(jinja2, text, answers):
    """`answers` has the pieces before the one that is being rendered, how many of them are counted with the length of
    these, and gets the answers' places and texts."""

    class Generation(jinja2.ext.Extension):
        tags = frozenset({"generation"})

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_generation"), [], [], body).set_lineno(line)

        def _generation(self, caller):
            piece = caller()
            counted, begin = answers["counted"]
            begin += sum(map(len, answers["pieces"][counted:]))
            answers["counted"] = len(answers["pieces"]), begin
            answers["places"].append((begin, begin + len(piece)))
            answers["texts"].append(piece)
            return piece

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Dict:
        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    def check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"the namespace cannot have the attribute {name!r}")

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attributes = dict(*args, **kwargs)
            for name in attributes:
                check_name(name)
            jinja2.utils.Namespace.__init__(self, attributes)

        def __setitem__(self, name, value):
            check_name(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    environment.globals["dict"] = Dict()
    environment.globals["namespace"] = Namespace
    try:
        return environment.from_string(text)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise Failure("BAD_TOKENIZER", f"line {error.lineno} of the chat template: {error.message}",
                      "Correct the template, or give another one.") from None
    except RecursionError:
        raise Failure("BAD_TOKENIZER", "the chat template is nested too deeply",
                      "Correct the template, or give another one.") from None


def parse_config(text, name):
    if not text:
        return {}
    try:
        config = json.loads(text)
    except ValueError as error:
        raise Failure("BAD_TOKENIZER", f"{name} is no JSON: {error}", "Write it anew.") from None
    if not isinstance(config, dict):
        raise Failure("BAD_TOKENIZER", f"{name} is no JSON object", "Write it anew.")
    return config


def named_templates(options, config):
    """Returns the templates by name; that of a model with one is the default."""
    template = options["chat_template.jinja"] or config.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
    templates = template if isinstance(template, dict) else {"default": template}
    templates = {name: text for name, text in templates.items() if isinstance(text, str)}
    if "default" not in templates:
        raise Failure("BAD_TOKENIZER", "it has no chat template, neither chat_template.jinja nor chat_template in "
                      "tokenizer_config.json", "Give a file with a template by --chat-template.")
    for name, text in templates.items():
        if not GENERATION.search(text):
            raise Failure("UNSUPPORTED", f"the chat template '{name}' does not say which text is an answer: it has no "
                          "{% generation %}", "Copy the template to a file, put {% generation %} and "
                          "{% endgeneration %} around the answer, and give the file by --chat-template.")
    return templates


def special_tokens(config, tokens_map):
    """Returns what templates see of them: a text by its name."""
    found = {}
    for source in (tokens_map, config):
        for name in SPECIAL_TOKENS:
            value = source.get(name)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                found[name] = value
    return found


def conversation_of(record):
    """Returns the messages of a line as Megatron-Bridge's normalize_chat_conversation does."""
    if not isinstance(record, dict):
        raise BadLine("the line holds no JSON object")
    for key in ("messages", "conversation", "conversations"):
        if record.get(key) is not None:
            turns = record[key]
            break
    else:
        raise BadLine("the object has none of the keys 'messages', 'conversation' and 'conversations'")
    if not isinstance(turns, list):
        raise BadLine(f"the value of '{key}' is no list")
    messages = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise BadLine(f"the list '{key}' has what is no object")
        if "role" in turn and "content" in turn:
            if turn["content"] is None:
                turn["content"] = ""
            parse_arguments(turn)
        elif "from" in turn and "value" in turn:
            role = str(turn["from"]).lower()
            turn = {"role": ROLES.get(role, role), "content": turn["value"]}
        else:
            raise BadLine("a message has neither 'role' and 'content' nor 'from' and 'value'")
        messages.append(turn)
    if record.get("system") and not any(turn.get("role") == "system" for turn in messages):
        messages.insert(0, {"role": "system", "content": record["system"]})
    return messages


def parse_arguments(turn):
    """The arguments of a tool call may be JSON in a text; templates want the object."""
    calls = turn.get("tool_calls")
    if turn.get("role") != "assistant" or not isinstance(calls, list):
        return
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            try:
                arguments = json.loads(function["arguments"])
            except ValueError:
                arguments = None
            if not isinstance(arguments, dict):
                raise BadLine("the arguments of a tool call are no JSON object")
            function["arguments"] = arguments


def with_reasoning(message):
    reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def limit_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + MOST_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


class Renderer:
    def __init__(self, options):
        self.jinja2 = load_jinja()
        config = parse_config(options["tokenizer_config.json"], "tokenizer_config.json")
        self.tokens = special_tokens(config, parse_config(options["special_tokens_map.json"],
                                                          "special_tokens_map.json"))
        self.answers = {}
        datetime.datetime.now().strftime("%Z")  # reads the time zone
        for codec in ("ascii", "unicode_escape"):
            codecs.lookup(codec)  # jinja2 decodes literals so
        limit_resources()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        limit_time()
        self.templates = {name: compile_template(self.jinja2, text, self.answers)
                          for name, text in named_templates(options, config).items()}

    def render(self, line):
        try:
            record = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise BadLine(f"it is no JSON: {error}") from None
        messages = [with_reasoning(message) for message in conversation_of(record)]
        tools = record.get("tools")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise BadLine("the value of 'tools' is no list of objects")
        more = record.get("chat_template_kwargs") or {}
        if not isinstance(more, dict):
            raise BadLine("the value of 'chat_template_kwargs' is no object")
        if wrong := sorted(CONTROLLED.intersection(more)):
            raise BadLine(f"'chat_template_kwargs' cannot decide about {', '.join(wrong)}")
        template = self.templates.get("tool_use" if tools is not None else "default") or self.templates["default"]
        pieces, places, texts = [], [], []
        self.answers.update(pieces=pieces, counted=(0, 0), places=places, texts=texts)
        limit_time()
        try:
            given = {"documents": None, "add_generation_prompt": False, **self.tokens, **more}
            for piece in template.generate(**{**given, "messages": messages, "tools": tools}):
                pieces.append(piece)
        except self.jinja2.exceptions.SecurityError as error:
            raise Failure("BAD_TOKENIZER", f"the chat template does what is not allowed: {error}",
                          "Do not use the template.") from None
        except MemoryError:
            raise Failure("MEMORY_LIMIT", f"the chat template needs more than {MOST_MEMORY >> 30} GiB of memory",
                          "Do not use the template, or cut the conversation.") from None
        except Exception as error:  # a template can raise anything
            raise BadLine(f"the chat template refuses it: {error or type(error).__name__}") from None
        text = "".join(pieces)
        if any(text[begin:end] != answer for (begin, end), answer in zip(places, texts)):
            raise BadLine("the chat template says that an answer is where it does not write it: its {% generation %} "
                          "is within another block, such as {% set %}")
        return text, places

    def answer(self, line):
        try:
            text, places = self.render(line)
            content = text.encode()
        except BadLine as bad:
            return frame(b"B", str(bad)[:1000].encode("utf-8", "replace"))
        except UnicodeEncodeError:
            return frame(b"B", b"it has half of a surrogate pair (\\ud800 to \\udfff alone), which is no character")
        where = bytes_of_places(text, content, places)
        return frame(b"R", struct.pack(f"<{1 + len(where)}I", len(places), *where) + content)


def bytes_of_places(text, content, places):
    if len(text) == len(content):
        return [place for pair in places for place in pair]
    found, position, behind = {}, 0, 0
    for place in sorted(place for pair in places for place in pair):
        behind += len(text[position:place].encode())
        position = place
        found[place] = behind
    return [found[place] for pair in places for place in pair]


def make_renderer(options):
    try:
        return Renderer(json.loads(options))
    except MemoryError:
        raise Failure("MEMORY_LIMIT", f"the chat template itself needs more than {MOST_MEMORY >> 30} GiB of memory "
                      "before any line", "Give a smaller template.") from None


def main():
    try:
        _, options = read_frame()
        renderer = make_renderer(options)
        write(frame(b"O"))
        while (received := read_frame()) is not None:
            write(renderer.answer(received[1]))
    except Failure as failure:
        write(failure_frame(failure))
    except MemoryError:
        write(failure_frame(Failure("MEMORY_LIMIT", f"a line needs more than {MOST_MEMORY >> 30} GiB of memory",
                                    "Give a smaller --max-line.")))


main()
