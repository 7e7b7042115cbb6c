"""tests/golden/beams.json: beam search of the models beside it, by transformers 5.17 on the CPU.
Each case: a model, prompts, options by GenerationConfig's names, and the new tokens of each prompt up to
and with its eos.  No padding: prompts go one by one.  Run: python3 make_beams.py"""
import json
import os

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig

torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__))
options = [
    {"num_beams": 3, "max_new_tokens": 12},
    {"num_beams": 4, "max_new_tokens": 12, "length_penalty": 2.0, "early_stopping": False},
    {"num_beams": 4, "max_new_tokens": 12, "length_penalty": -1.0, "early_stopping": True},
    {"num_beams": 2, "max_new_tokens": 14, "length_penalty": 0.6, "early_stopping": "never"},
    {"num_beams": 3, "max_new_tokens": 12, "repetition_penalty": 1.7},
    {"num_beams": 1, "max_new_tokens": 12, "repetition_penalty": 1.7},
]
cases = []
for name in ("t5-v10", "t5-v11", "llama-a", "bloom-a", "gpt2-a"):
    d = os.path.join(here, "models", name)
    seq2seq = name.startswith("t5")
    model = (AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM).from_pretrained(d).eval()
    f = safe_open(os.path.join(d, "golden.safetensors"), "pt")
    ids, mask = f.get_tensor("right.input_ids"), f.get_tensor("right.attention_mask")
    prompts = [ids[r][mask[r] == 1][:9 - 2 * r] for r in range(2)]
    cache = name != "t5-v11"
    def run(o, eos):
        gc = GenerationConfig(do_sample=False, pad_token_id=0, bos_token_id=1, eos_token_id=eos, use_cache=cache,
                              **({"decoder_start_token_id": 0} if seq2seq else {}), **o)
        out = []
        for p in prompts:
            s = model.generate(p[None], attention_mask=torch.ones_like(p[None]), generation_config=gc)[0].tolist()
            s = s[1:] if seq2seq else s[len(p):]
            for i, t in enumerate(s):
                if t in eos:
                    s = s[: i + 1]
                    break
            out.append(s)
        return out
    # ids that beams meet soon, as ends
    seen = [t for s in run({"num_beams": 4, "max_new_tokens": 12}, [2]) for t in s]
    ends = [[seen[4]], [seen[2], seen[7]]]
    for i, o in enumerate(options):
        for eos in [[2]] + ends:
            cases.append({"model": name, "prompts": [p.tolist() for p in prompts], "options": o, "eos": eos,
                          "output": run(o, eos)})
json.dump(cases, open(os.path.join(here, "beams.json"), "w"))
print(len(cases))
