"""Chat templates in the manner of known families, each with {% generation %} around what the assistant says."""



def answer(end):
    return "{% generation %}{{ message['content'] }}" + end + "{% endgeneration %}"



TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{% if message['role'] == 'assistant' %}" + answer("{{ '<|im_end|>' }}") +
        "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "qwen": """
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and ns.last == messages|length - 1 %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {%- if message.reasoning_content is defined and loop.index0 > ns.last %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content.lstrip('\\n') }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>' }}{{- call.function.name }} {{ call.function.arguments | tojson }}{{- '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}""",
    "llama-3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set head = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}"
        "{% if loop.index0 == 0 %}{% set head = bos_token + head %}{% endif %}{{ head }}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}"
        "{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"),
    "llama-2": (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
        "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + "
        "message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{% generation %}{{ ' ' + content.strip() + ' ' + eos_token }}"
        "{% endgeneration %}{% endif %}{% endfor %}"),
    "mistral": (
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + "
        "message['content'] + '[/INST]' }}{% elif message['role'] == 'assistant' %}{% generation %}{{ ' ' + "
        "message['content'] | trim + eos_token }}{% endgeneration %}{% elif message['role'] == 'system' %}"
        "{{ '[SYSTEM] ' + message['content'] }}{% else %}{{ raise_exception('Only user, assistant and system!') }}"
        "{% endif %}{% endfor %}"),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' }}"
        "{% if role == 'model' %}{% generation %}{{ message['content'] | trim + '<end_of_turn>\n' }}{% endgeneration %}"
        "{% else %}{{ message['content'] | trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}"),
    "deepseek": (
        "{% set ns = namespace(system='', first=true) %}{%- for message in messages %}{%- if message['role'] == "
        "'system' %}{%- if ns.first %}{% set ns.system = ns.system + message['content'] %}"
        "{% set ns.first = false %}{%- else %}"
        "{% set ns.system = ns.system + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}"
        "{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}"
        "{{ '<｜User｜>' + message['content'] }}{%- elif message['role'] == 'assistant' %}{{ '<｜Assistant｜>' }}"
        "{% generation %}{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}{{ content + '<｜end▁of▁sentence｜>' }}"
        "{% endgeneration %}{%- endif %}{%- endfor %}"),
    "phi-3": (
        "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<|assistant|>\n' }}" +
        answer("{{ '<|end|>\n' }}") +
        "{% else %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endif %}"
        "{% endfor %}{{ eos_token }}"),
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
<|assistant|>
{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}

{% endif %}
{% endfor %}""",
    "granite": """{%- for message in messages %}
    {%- if message['role'] == 'tool' %}{% continue %}{% endif %}
    {%- if message['role'] == 'assistant' -%}
        <|start_of_role|>assistant<|end_of_role|>
        {%- generation %}{{ message['content'] }}<|end_of_text|>{% endgeneration %}
    {%- else -%}
        <|start_of_role|>{{ message['role'] }}<|end_of_role|>{{ message['content'] }}<|end_of_text|>
    {%- endif %}
{{ '' }}
{%- endfor %}""",
    "command-r": (
        "{{ bos_token }}{%- macro turn(role) %}<|START_OF_TURN_TOKEN|><|{{ role | upper }}_TOKEN|>{% endmacro %}"
        "{% for message in messages %}{{ turn(message.role) }}{% if message.role == 'assistant' %}{% generation %}"
        "{{ message['content'].strip() }}{{ '<|END_OF_TURN_TOKEN|>' }}{% endgeneration %}{% else %}"
        "{{ message['content'].strip() }}<|END_OF_TURN_TOKEN|>{% endif %}{% endfor %}"),
    "vicuna": (
        "{% if documents %}{{ documents | length }}{% endif %}{% for message in messages %}"
        "{% if message['role'] == 'user' %}USER: {{ message['content'] | capitalize }} {% elif message['role'] == "
        "'assistant' %}ASSISTANT: {% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}{{ '\n' }}"
        "{% else %}{{ message | tojson(indent=1) }} {{ dict(a=loop.index).items() | list }}{% endif %}{% endfor %}"),
}
