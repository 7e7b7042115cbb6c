"""tests/golden/chats.json: conversations as transformers' tokenizers and trl's trainer turn them into ids and labels.

Made with transformers 5.23, trl 1.16 (data_utils alone).  Templates are those of make_chat.py (published styles); MARKED
has some of them again with {% generation %} around what the assistant wrote, so that transformers' own
assistant_masks say what the rule of rendered prefixes must find in the template without them.
chats.parquet, beside chats.jsonl: some of the conversations as nested columns, absent members null (pyarrow 25).
Labels: what trl's SFTTrainer makes of assistant_only_loss (messages), of completion_only_loss (prompt, completion)."""
import contextlib
import io
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerFast
from trl.data_utils import _tokenize, common_prefix_length

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
argv, sys.argv = sys.argv, ["make_chat.py", "--out", os.devnull]
with contextlib.redirect_stdout(io.StringIO()):
    import make_chat as m
sys.argv = argv


def marked(template, *pairs):
    for old, new in pairs:
        assert template.count(old) == 1, (old, template.count(old))
        template = template.replace(old, new)
    return template


# What is between the tags ends where the turn does, white space behind it included.
PLAIN = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
PLAIN_MARKED = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' + '\\n' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
CHATML_MARKED = marked(m.CHATML,
    ('(message.role == "assistant" and not message.tool_calls) %}', '(false) %}'),
    ('''    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
''', '''    {%- elif message.role == "assistant" and not message.tool_calls %}
        {{- '<|im_start|>' + message.role + '\\n' }}{% generation %}{{- message.content + '<|im_end|>' + '\\n' }}{% endgeneration %}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' }}{% generation %}
'''),
    ("{{- '\\n' + message.content }}", "{{- message.content }}"),
    ("{{- '\\n<tool_call>\\n{\"name\": \"' }}", "{{- ('' if loop.first and not message.content else '\\n') + '<tool_call>\\n{\"name\": \"' }}"),
    ("""        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}""", """        {{- '<|im_end|>\\n' }}{% endgeneration %}
    {%- elif message.role == "tool" %}"""))
QWEN3_MARKED = marked(m.QWEN3,
    ("{{- '<|im_start|>' + message.role + '\\n<think>\\n' +", "{{- '<|im_start|>' + message.role + '\\n' }}{% generation %}{{- '<think>\\n' +"),
    ("content.lstrip('\\n') }}", "content.lstrip('\\n') + '<|im_end|>\\n' }}{% endgeneration %}"),
    ("""            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}""", """            {{- '<|im_start|>' + message.role + '\\n' }}{% generation %}{{- content + '<|im_end|>\\n' }}{% endgeneration %}
        {%- endif %}"""))
LLAMA3_MARKED = """{% for message in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA2_MARKED = marked(m.LLAMA2, ("{{ ' '  + content.strip() + ' ' + eos_token }}", "{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}"))
MISTRAL_MARKED = marked(m.MISTRAL, ('''{{- " " + message["content"]|trim + eos_token}}''', '''{% generation %}{{- " " + message["content"]|trim + eos_token}}{% endgeneration %}'''))
ZEPHYR_MARKED = marked(m.ZEPHYR, ("""{{ '<|assistant|>
'  + message['content'] + eos_token }}
""", """{{ '<|assistant|>
' }}{% generation %}{{ message['content'] + eos_token + '
' }}{% endgeneration %}"""))
PHI3_MARKED = marked(m.PHI3, ("{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}", "{{'<|assistant|>\\n'}}{% generation %}{{ message['content'] + '<|end|>\\n'}}{% endgeneration %}"))
# The last turn as two spans, as trl's own training template for Phi-3 has it.
PHI3_SPLIT = marked(PHI3_MARKED, ("{% else %}{{ eos_token }}", "{% elif messages[-1]['role'] == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}{% else %}{{ eos_token }}"))

TOKENIZERS = {
    "qwen": dict(bos_token=None, eos_token="<|im_end|>"), "llama3": dict(bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"),
    "llama2": dict(bos_token="<s>", eos_token="</s>"), "mistral": dict(bos_token="<s>", eos_token="</s>"),
}
# style: tokenizer, template, the same with marks (itself where it has them)
STYLES = {
    "plain": ("qwen", PLAIN, PLAIN_MARKED), "plain marked": ("qwen", PLAIN_MARKED, PLAIN_MARKED),
    "chatml": ("qwen", m.CHATML, CHATML_MARKED), "qwen3": ("qwen", m.QWEN3, QWEN3_MARKED), "qwen3 marked": ("qwen", QWEN3_MARKED, QWEN3_MARKED),
    "phi4": ("qwen", m.PHI4, m.PHI4), "llama3": ("llama3", m.LLAMA3, LLAMA3_MARKED), "llama3 marked": ("llama3", LLAMA3_MARKED, LLAMA3_MARKED),
    "llama2": ("llama2", m.LLAMA2, LLAMA2_MARKED), "mistral": ("mistral", m.MISTRAL, MISTRAL_MARKED),
    "zephyr": ("llama2", m.ZEPHYR, ZEPHYR_MARKED), "phi3": ("llama2", m.PHI3, PHI3_MARKED), "phi3 marked": ("llama2", PHI3_SPLIT, PHI3_SPLIT), "gemma": ("llama2", m.GEMMA, None), "deepseek": ("llama2", m.DEEPSEEK, None),
}


def turn(role, content, **more):
    return dict({"role": role, "content": content}, **more)


S, U1, A1 = turn("system", "Be brief."), turn("user", "Hi \u00e9t\u00e9! What is 2+2?"), turn("assistant", "It is four \U0001f600.")
U2, A2 = turn("user", "And the colour of the sky?"), turn("assistant", "Blue, of course. \u4f60\u597d")
THINK = turn("assistant", "<think>\nlet me see\n</think>\n\nFour.")
CALL = turn("assistant", None, tool_calls=[{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.0, 0.5]}}}])
ANSWER = turn("tool", "3.0")
RECORDS = {
    "one turn": {"messages": [U1, A1]}, "two turns": {"messages": [U1, A1, U2, A2]}, "system": {"messages": [S, U1, A1, U2, A2]},
    "think": {"messages": [U1, THINK]}, "think twice": {"messages": [U1, THINK, U2, A2]},
    "reasons": {"messages": [U1, turn("assistant", "Four.", reasoning="so"), U2, turn("assistant", "Blue.", thinking="hm", name=None)]},
    "ends with a question": {"messages": [U1, A1, U2]}, "tools": {"messages": [S, U1, CALL, ANSWER, A1], "tools": [m.TOOL]},
    "tools as text": {"messages": [U1, CALL, ANSWER, A2], "tools": json.dumps([m.TOOL])}, "no tools": {"messages": [U1, A1], "tools": []},
    "arguments": {"messages": [U1, A1], "chat_template_kwargs": {"enable_thinking": False, "bos_token": "<s>"}},
    "sharegpt": {"conversations": [{"from": "system", "value": "Be kind."}, {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]},
    "sharegpt with a system": {"system": "Be kind.", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}, {"from": "human", "value": "Bye"}, {"from": "gpt", "value": "So long."}]},
    "pair": {"prompt": [U1], "completion": [A1]}, "long pair": {"prompt": [S, U1, A1, U2], "completion": [A2]},
    "pair of several": {"prompt": [U1], "completion": [A1, U2, A2]}, "pair that thinks": {"prompt": [U1], "completion": [THINK]},
}
ROLES = {"human": "user", "gpt": "assistant"}


def chatml(record):
    """ShareGPT as trl.data_utils.maybe_convert_to_chatml has it, and its roles by the names that templates know."""
    if "conversations" not in record:
        return record
    messages = [turn(ROLES.get(x["from"], x["from"]), x["value"]) for x in record["conversations"]]
    return {"messages": ([turn("system", record["system"])] if "system" in record else []) + messages}


def labels(ids, mask):
    """[begin, end) of the tokens whose labels are their ids; the others' are -100."""
    edge = [i for i, (a, b) in enumerate(zip([0, *mask], [*mask, 0])) if a != b]
    return list(zip(edge[::2], edge[1::2]))


def last_only(mask):
    mask, i = list(mask), len(mask) - 1
    while i >= 0 and not mask[i]:
        i -= 1
    while i >= 0 and mask[i]:
        i -= 1
    return [0] * (i + 1) + mask[i + 1:]


def case(style, kind, record):
    name, template, with_marks = STYLES[style]
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(here, "tokenizers", name, "tokenizer.json"), chat_template=template,
                                  **{k: v for k, v in TOKENIZERS[name].items() if v})
    out = {"name": f"{style}: {kind}", "style": style, "record": record}
    r = chatml(record)
    tools = r.get("tools")
    tools = (json.loads(tools) if isinstance(tools, str) else tools) or None
    kw = dict({"tools": tools}, **r.get("chat_template_kwargs", {}))
    try:
        if "prompt" in r:
            a = _tokenize(tok, r["prompt"], add_generation_prompt=True, **kw)["input_ids"]
            ids = _tokenize(tok, r["prompt"] + r["completion"], **kw)["input_ids"]
            k = common_prefix_length(a, ids)
            out.update(ids=ids, labels=labels(ids, [0] * k + [1] * (len(ids) - k)))
            return out
        ids = _tokenize(tok, r["messages"], **kw)["input_ids"]
    except Exception as e:
        return dict(out, error=str(e)[:60] if "oles" in str(e) or "role" in str(e) else "")
    out["ids"] = ids
    if with_marks:
        same = _tokenize(tok, r["messages"], chat_template=with_marks, return_assistant_tokens_mask=True, **kw)
        assert same["input_ids"] == ids, (out["name"], tok.decode(ids), tok.decode(same["input_ids"]))
        mask = same["assistant_masks"]
        # Of a last character that is several tokens transformers takes the first alone: it belongs to the turn as a whole.
        text = tok.apply_chat_template(r["messages"], tokenize=False, **kw)
        at = tok(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        for i in range(1, len(ids)):
            mask[i] |= mask[i - 1] and at[i] == at[i - 1]
        if style == "phi3" and r["messages"][-1]["role"] == "assistant":
            mask[-1] = 1  # the eos behind the chat is the last turn's
        if "enable_thinking" in kw and style == "qwen3":
            # An empty thought is part of what the model is given, as in a prompt with a completion.
            k = common_prefix_length(_tokenize(tok, r["messages"][:-1], add_generation_prompt=True, **kw)["input_ids"], ids)
            mask = [0] * k + mask[k:]
        if style == "qwen3" and kind.startswith("tools"):
            # What follows changes how a turn without content is written: only the last turn can be told.
            out["refused"] = True
        else:
            out["labels"] = labels(ids, mask)
        if r["messages"][-1]["role"] == "assistant":
            out["last"] = labels(ids, last_only(mask))
    if r["messages"][-1]["role"] == "assistant":
        out["question"] = tok.apply_chat_template(r["messages"][:-1], add_generation_prompt=True, tokenize=False, **kw)
    return out


cases = [case(s, k, r) for s in STYLES for k, r in RECORDS.items()]
styles = {s: dict(tokenizer=t, template=x, **{k: v for k, v in TOKENIZERS[t].items() if v}) for s, (t, x, _) in STYLES.items()}
with open(os.path.join(here, "chats.json"), "w") as f:
    f.write(json.dumps({"styles": styles})[:-1] + ',\n"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
rows = [RECORDS[k] for k in ("one turn", "two turns", "system", "think", "tools", "two turns")]
with open(os.path.join(here, "data", "chats.jsonl"), "w") as f:
    f.write("".join(json.dumps(r) + "\n" for r in rows))
message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(pa.struct([
    ("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]))]))])))])
table = pa.Table.from_pylist([dict(r, tools=json.dumps(r["tools"]) if "tools" in r else None) for r in rows],
                             pa.schema([("messages", pa.list_(message)), ("tools", pa.string())]))
pq.write_table(table, os.path.join(here, "data", "chats.parquet"))
print(len(cases), "cases,", sum("error" in c for c in cases), "errors,", sum("refused" in c for c in cases), "refused,", sum("labels" in c for c in cases), "with labels")
