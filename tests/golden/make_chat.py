"""tests/golden/chat.json: chat templates and what transformers' own environment renders from them.

Made with transformers 5.24, jinja2 3.1.  Usage: make_chat.py [FILE.jinja ...]; further templates
are rendered over the same conversations (nothing is kept of them but on the way to --out FILE).
The templates below are written for this test after the formats that the models' cards document:
ChatML (Qwen2.5, Qwen3), Llama 2, Llama 3 and 3.1 with tools, Mistral, Phi-3, Phi-4, Gemma,
Zephyr, DeepSeek, and features of the language one by one."""
import datetime
import json
import os
import sys

import transformers.utils.chat_template_utils as u


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(1700000000, datetime.timezone.utc)


u.datetime = Clock
CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- A system message is taken out. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is defined and tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" and message.content %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""
PHI3 = """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""
PHI4 = """{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}{% generation %}{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c><think>\\n'}}{% endif %}"""
MASKED = """{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}{% endif %}

{% endfor %}"""
TEMPLATES = dict(chatml=CHATML, qwen3=QWEN3, llama2=LLAMA2, llama3=LLAMA3, llama31=LLAMA31, mistral=MISTRAL,
                 phi3=PHI3, phi4=PHI4, gemma=GEMMA, zephyr=ZEPHYR, deepseek=DEEPSEEK, masked=MASKED)
for path in [a for a in sys.argv[1:] if a.endswith(".jinja")]:
    TEMPLATES[os.path.basename(path)] = open(path).read()
S, U, A = ({"role": r, "content": c} for r, c in (("system", "Be brief. "), ("user", " Hi \u00e9t\u00e9!\n"), ("assistant", "Hello \U0001f600")))
TOOL = {"type": "function", "function": {"name": "add", "description": "adds \"two\" <numbers>", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number", "default": 1.5}}, "required": ["a"]}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.0, None, True, "\u00e9\n"]}}}]}
THINK = {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nFour."}
CONVERSATIONS = {
    "one": dict(messages=[U]), "two": dict(messages=[U, A, {"role": "user", "content": "And 2+2?"}]),
    "system": dict(messages=[S, U, A]), "prompt": dict(messages=[S, U], add_generation_prompt=True),
    "think": dict(messages=[U, THINK, {"role": "user", "content": "more"}, THINK]),
    "nothink": dict(messages=[U], add_generation_prompt=True, enable_thinking=False),
    "tools": dict(messages=[S, U, CALL, {"role": "tool", "content": "3.0"}, A], tools=[TOOL, TOOL]),
    "wrong": dict(messages=[U, U]), "dated": dict(messages=[U, A], date_string="1 Jan 2025"),
}
FEATURES = r'''
{{ 1 + 2 * 3 - 4 // 3 % 5 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 1_000 }}
{{ 'a' ~ 1 ~ none ~ true ~ [1, 'b'] ~ {'k': "it's"} ~ (1,) ~ (1, 2) }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }}
{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing|default('d') }}|{{ ''|d('e', true) }}|{{ none|default('x') }}
{{ 1 < 2 < 3 }} {{ 3 > 2 >= 2 != 1 }} {{ 'a' in 'cat' }} {{ 1 not in [2, 3] }} {{ not 1 == 2 }} {{ 'b' in {'b': 1} }}
{{ 'x' if true else 'y' }}{{ 'x' if false }}{{ 'z' if 0 else 'w' if '' else 'v' }}
{% for i in range(5) %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %} {% for i in [] %}x{% else %}none{% endfor %}
{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{{ loop.revindex0 }}{{ loop.first }}{% endfor %} {% for x in [3, 1, 2] if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(3) %}{{ loop.previtem is defined }}{{ loop.nextitem }}{% for j in 'ab' %}{{ loop.depth }}{{ j }}{% endfor %}{% endfor %}
{% set a, b = 1, [2, 3] %}{{ a }}{{ b }}{% set c %}block {{ a }}{% endset %}{{ c|upper }}{% set ns = namespace(x=1, y='q') %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% set a = 9 %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ a }}
{% macro f(x, y=2, z='c') %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{{ f(1) }}{{ f(1, z=5) }}{{ f(x=3, y=4)|length }}
{{ '  pad '|trim }}|{{ '  pad '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}|{{ '\u00a0x\u3000'|trim }}
{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\nb\r\nc'.splitlines() }} {{ ''.split(',') }}
{{ 'Hello'.startswith('He') }} {{ 'Hello'.endswith(('lo', 'x')) }} {{ 'hello'.upper() }} {{ 'HELLO'.lower() }} {{ 'hELLO wORLD'.capitalize() }} {{ "it's a dog2cat".title() }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'|replace('X', '') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.count('l') }} {{ 'hello'.find('z') }}
{{ 'pre_x'.removeprefix('pre_') }} {{ 'x_suf'.removesuffix('_suf') }} {{ '-'.join(['a', 'b']) }} {{ '123'.isdigit() }} {{ ''.isdigit() }}
{{ 'h\u00e9llo'[1] }} {{ 'h\u00e9llo'[-1] }} {{ 'h\u00e9llo'[1:3] }} {{ 'h\u00e9llo'[::-1] }} {{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3, 4][:-1] }} {{ [1, 2, 3, 4][::2] }} {{ [1, 2, 3, 4][::-1] }} {{ [1, 2, 3][5:] }} {{ [1,2,3,4][3:0:-2] }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 5) }} {{ {'a': 1, 'b': 2}.keys()|list }} {{ {'a': 1, 'b': 2}.values()|list }} {{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ {'items': 3}['items'] }}
{{ [1, 2, 3]|length }} {{ 'h\u00e9'|length }} {{ {'a': 1}|count }} {{ [3, 1, 2]|sort }} {{ [3, 1, 2]|sort(reverse=true) }} {{ ['b', 'A', 'c']|sort }} {{ [1, 2, 1]|unique|list }} {{ [1, 2]|first }} {{ [1, 2]|last }} {{ [1, 2]|reverse|list }} {{ 'abc'|reverse }}
{{ [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]|map(attribute='a')|list }} {{ ['a', 'b']|map('upper')|join('+') }} {{ [{'a': {'b': 7}}]|map(attribute='a.b')|join }} {{ [{'n': 1}]|map(attribute='q', default='-')|join }}
{{ [{'r': 'u', 'v': 1}, {'r': 'a', 'v': 2}]|selectattr('r', 'equalto', 'u')|map(attribute='v')|list }} {{ [{'r': 'u'}, {'v': 2}]|rejectattr('r', 'defined')|list }} {{ [0, 1, 2]|select|list }} {{ [1, 2, 3, 4]|reject('odd')|list }} {{ [{'r': 1}, {'r': 0}]|selectattr('r')|list }}
{{ {'z': [1, 2.5, none, true, 'q"\u00e9<&>'], 'a': {}}|tojson }} {{ []|tojson }} {{ 'x/y\t'|tojson }} {{ 1.0|tojson }} {{ 1e20|tojson }}
{{ {'z': [1, {'y': []}], 'a': {}}|tojson(indent=2) }}
{{ {'z': [1, 'é😀\x7f'], 'a': {}}|tojson(separators=(',', ':')) }} {{ {'z': [1], 'a': 2}|tojson(indent=1, separators=(';', '=')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true) }} {{ {'é': 'é😀\x7f'}|tojson(true) }} {{ 'é'|tojson(4) }} {{ {'é': [1]}|tojson(false, 2) }} {{ 'é'|tojson(ensure_ascii=True) }}
{{ "it's a dog2cat (in) the-box <x> [y]"|title }} {{ ['b', 'A']|title }} {{ 2|round }} {{ 2.5|round }} {{ 2.85|round(1) }} {{ 2.57|round(1, 'floor') }} {{ 2.51|round(method='ceil') }} {{ 7|round(-1) }} {{ true|abs }} {{ (1, 2, 3)[1:] }} {{ (1, 2)[::-1] }} {{ [nothing, 1] }} {{ {'a': nothing} }}
{{ 'lll'|replace('l', 'x', 2) }} {{ {'b': 1, 'A': 2}|dictsort(reverse=true) }} {{ {'b': 1, 'A': 2}|dictsort(false, 'value') }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }} {{ [1]|safe|length }} {{ ['b', 'A']|sort(false, true) }} {{ ['b', 'A', 'a']|unique|list }} {{ ['b', 'A', 'a']|unique(true)|list }} {{ ['b', 'A']|min(true) }}
{{ '3'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '2.5'|float }} {{ 3.9|int }} {{ 2.567|round(2) }} {{ -3|abs }} {{ [1, 2]|sum }} {{ [1, 5, 2]|max }} {{ [4, 2]|min }} {{ 5|string + 'x' }} {{ '<a>'|e }} {{ '<a>'|safe }}
{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'hello world'|capitalize }}|{{ 'hello world'|title }}|{{ {'b': 1, 'a': 2}|dictsort }}|{{ [1, 2]|join(', ') }}
{{ none is none }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ [] is sequence }} {{ 1 is number }} {{ true is boolean }} {{ 1 is integer }} {{ 1.5 is float }} {{ true is true }} {{ 0 is false }} {{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby(3) }} {{ 9 is divisibleby 2 }} {{ 1 is eq 1 }} {{ 1 is in [1] }} {{ 'a' is lower }} {{ f is callable }} {{ 1 is not none }} {{ not x is defined }}
a {%- if true %} b {%- endif -%} c {{- ' d ' -}} e {#- comment -#} f {%+ if true %} g{% endif %}
{% raw %}{{ not rendered }} {% nor this %}{% endraw %}
{% filter upper %}shout {{ 'this' }}{% endfilter %} {{ "a" "b" 'c' }} {{ 'tab\tquote\'back\\slash\u00e9\x41' }} {{ '\d' }}
{{ true and 'x' }} {{ 0 or 'y' }} {{ none or false }} {{ '' and 1 }} {{ [] or {} }} {{ True }} {{ None }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] == [1, 2] }}
{{ dict(a=1, b='x') }} {{ range(3)|list }} {{ range(1, 10, 4)|list }} {{ range(3, 0, -1)|list }} {{ strftime_now('%Y-%m-%d %H:%M') }} {{ namespace(a=1).a }} {{ [[1, 2], [3]]|sum(start=[]) }}
{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2,'x')|list }} {{ 'abc'|batch(0)|list }} {{ [1,2,3,4,5]|slice(3)|list }} {{ [1,2,3,4]|slice(3,'x')|list }} {{ []|slice(2,0)|list }} {{ [1]|slice(-1)|list }}
{% for g in [{'a': 'B', 'v': 1}, {'a': 'a', 'v': 2}, {'a': 'b', 'v': 3}]|groupby('a') %}{{ g.grouper }}={{ g.list|map(attribute='v')|join('+') }};{{ g }}{% endfor %}{{ [{'a': {'c': 2}}, {'a': {}}]|groupby('a.c', default=1)|map(attribute='grouper')|list }}
{% for k, l in [['x', 1], ['X', 2]]|groupby(0, case_sensitive=true) %}{{ k }}{{ l }}{% endfor %}{{ [[1, 'b'], [2, 'a']]|map(attribute='1')|list }}{{ "it's a_b w\u00f6rld \u65e5\u672c 1\u00bd e\u0301x - "|wordcount }}{{ none|wordcount }}
{% for i in [1, 1, 2, 2, 1] %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(i) }} {% endfor %}{% for i in [1, 1, 2] %}{{ loop.changed(i, 0) }}{% endfor %}
{% macro p(x) %}<{{ x }}>{% endmacro %}{% macro q(x, y=2, z=3) %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{% set fs = [p, q] %}{% set all = [[1], [2, 3]] %}{% for i in range(2) %}{{ fs[i](*all[i]) }}{% endfor %}{{ q(1, *'ab') }}{{ q(*[1], z=7) }}{{ q(**{'x': 4, 'z': 5}) }}{{ [1, 3]|sort(**{'reverse': true}) }}{{ 3 is divisibleby(*[3]) }}
{{ none|selectattr('a')|list }}{{ none|map('upper')|list }}{{ none|reject('odd')|list }}{{ 1[2:] }}{{ none['a':] }}{{ (1,) * 2 }}{{ true ** 2 }}{{ 'a' * true }}{{ true is odd }}{{ -0.0 }}
{% if false %}{{ 1|unknown_filter }}{% if 1 is unknown_test %}{% endif %}{% endif %}{{ 1|unknown_filter if false else 'used' }}{{ 'used' if true else 1|unknown_filter }}
{{ "%s|%-4s|%4s|%.2s|%d|%05d|%+d|% d|%x|%#X|%o|%e|%.3g|%6.2f|%r|%%"|format(none, '\u00e9', 'b', 'cut', 3.9, 42, 5, 6, 255, 255, 8, 12345.678, 0.00001234, -2.345, "q'") }} {{ "%(a)s%(b)03d"|format(a='x', b=7) }} {{ '%s' % [1, 2] }} {{ '%s-%s' % (1, true) }} {{ '%(k)s' % {'k': 1} }} {{ '%*d|%-*d|%.*f' % (5, 1, 4, 2, 2, 3.14159) }}
{{ '{}-{}'.format(1, 'b') }} {{ '{1}{0}{{}}'.format('a', none) }} {{ '{a}{b[k]}{b.k}{c[1]}'.format(a=1, b={'k': 2}, c=[3, 4]) }} {{ '{!r}{!s}'.format('x', 'y') }} {{ '<|image_{i:d}|>'.format(i=3) }}
{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+}|{:,}|{:_x}|{:#b}|{:.2f}|{:.3}|{:e}|{:%}|{:10.3f}|{:{}}|{:5}|{:\u00e9>4}|{:010.2f}|{:=+6d}|{:<05}|{:05}|{:,.1f}'.format('a', 'b', 'c', 'd', 42, 5, 1234567, 1234567, -5, 3.14159, 'abcdef', 12345.678, 0.25, 2.5, 'w', 3, true, 'x', -3.14159, 5, 3, 'q', -1234.56) }}
{{ "<'"|safe + "a<b>&" + '<' }} {{ '<' + '<'|safe }} {{ '<'|safe ~ '<' }} {{ (' <'|safe|trim) + '<' }} {{ '<'|e|e }} {{ '<'|e + '<' }} {{ ['<'|safe, '<']|join }}
{% if false %}a{% elif true %}b{% else %}c{% endif %}{% if false %}a{% elif false %}b{% else %}c{% endif %}{% if none %}{% endif %}{{ ('a', 'b')[1] }}{{ [1, [2, 3]][1][0] }}{{ {'a': [{'b': 5}]}.a[0].b }}
    {% if true %}
  indented
    {% endif %}
    {# gone #}
    {{ 'kept' }}
'''.strip("\n").split("\n")
FEATURES = FEATURES[:-6] + ["\n".join(FEATURES[-6:]), "a{% raw %}\n  {{ x }}\n  {% endraw %}\nb\n  {% raw -%}  \n {{ y }} {%- endraw %}  c\n {%- raw %} d {% endraw -%} \n e{%raw%}{% if %}{%endraw%}{%+ raw %} f\n   {%+ endraw +%}\ng", "one\r\ntwo\n", "{% for i in [1] %}\n{{ i }}\n{% endfor %}\n\nend\n\n", "", "plain", "{{ {'a': {'b': 1}}['a']['b'] }}}"]


def case(name, template, variables):
    out = {"name": name, "template": template, "vars": dict({"tools": None, "documents": None}, **variables)}
    try:
        text, spans = u.render_jinja_template([variables["messages"]] if "messages" in variables else [[]], tools=None, chat_template=template,
                                              return_assistant_tokens_mask="generation %}" in template, add_generation_prompt=variables.get("add_generation_prompt", False),
                                              **{k: v for k, v in variables.items() if k not in ("messages", "add_generation_prompt", "tools")})
        if "tools" in variables:
            raise KeyError  # its schemas are rendered as they are given, not from Python's functions
        out["text"] = text[0]
        if "generation %}" in template:
            out["spans"] = [list(x) for x in spans[0]]
    except KeyError:
        t = u._compile_jinja_template(template)
        try:
            out["text"] = t.render(**out["vars"])
        except Exception as e:
            out["error"] = str(e)
    except Exception as e:
        out["error"] = str(e)
    return out


done = []
for name, template in TEMPLATES.items():
    for kind, variables in CONVERSATIONS.items():
        variables = dict(variables, bos_token="<s>", eos_token="</s>")
        variables.setdefault("add_generation_prompt", False)
        c = case(f"{name}/{kind}", template, variables)
        if "error" in c and "must alternate" not in c["error"] and "not supported" not in c["error"] and "single tool" not in c["error"]:
            c["error"] = ""
        done.append(c)
for i, template in enumerate(FEATURES):
    c = case(f"feature {i}", template, {"messages": [], "add_generation_prompt": False})
    assert "text" in c, (template, c)
    c["vars"] = {}
    done.append(c)
out = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat.json")
with open(out, "w") as f:
    f.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in done) + "\n]}\n")
print(len(done), sum("error" in c for c in done))
