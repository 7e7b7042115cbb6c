"""tests/golden/generation.json: what transformers does to logits before a token is chosen, and generate() with
the defaults of a generation_config.json.  By transformers 5.24 and torch 2.15 on the CPU.

"processed": logits [12], history, options by GenerationConfig's names; p: the probabilities a token is drawn
by (do_sample) or the logits as they are left (null: -inf).  "runs": a model, prompts, the generation_config
given and the new tokens of each prompt up to and with its eos; no padding, prompts go one by one.
Run: python3 make_generation.py"""
import json
import os

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig

torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__))


def load(name):
    d = os.path.join(here, "models", name)
    return (AutoModelForSeq2SeqLM if name.startswith("t5") else AutoModelForCausalLM).from_pretrained(d).eval()


model = load("llama-a")
torch.manual_seed(5)
processed = []
sampling = [
    {}, {"top_k": 0}, {"top_k": 3}, {"top_k": 5, "temperature": 0.6}, {"top_k": 0, "top_p": 0.8},
    {"top_k": 6, "top_p": 0.5, "temperature": 1.7}, {"top_k": 0, "min_p": 0.1}, {"min_p": 0.3, "temperature": 2.0},
    {"top_k": 0, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.8, "top_k": 4}, {"no_repeat_ngram_size": 2, "top_k": 0}, {"no_repeat_ngram_size": 1, "top_k": 0},
    {"no_repeat_ngram_size": 3, "top_p": 0.7}, {"min_new_tokens": 4, "top_k": 0}, {"min_length": 8, "top_k": 3},
    {"suppress_tokens": [1, 4, 7], "top_k": 0}, {"begin_suppress_tokens": [2, 3], "top_k": 0},
    {"forced_eos_token_id": 9, "max_length": 7}, {"repetition_penalty": 0.7, "no_repeat_ngram_size": 2, "min_new_tokens": 3,
                                                  "temperature": 0.9, "top_k": 7, "top_p": 0.95, "min_p": 0.02},
    {"top_k": 0, "typical_p": 0.6}, {"top_k": 0, "typical_p": 0.2}, {"top_k": 6, "typical_p": 0.9, "temperature": 0.8},
    {"top_k": 0, "epsilon_cutoff": 0.05}, {"top_k": 0, "eta_cutoff": 0.1}, {"top_k": 0, "top_p": 0.95, "epsilon_cutoff": 0.02},
    {"top_k": 0, "typical_p": 0.95, "epsilon_cutoff": 0.03, "eta_cutoff": 0.2, "temperature": 1.5},
    {"top_k": 0, "bad_words_ids": [[4], [3, 5], [5, 3], [9, 8, 7], [2], [5, 6]]},
    {"top_k": 0, "sequence_bias": [[[1], 2.5], [[3, 5, 8], -3.0], [[5, 7], 4.0], [[1, 2, 3, 11], 1.0]]},
    {"top_k": 0, "exponential_decay_length_penalty": [1, 1.5]}, {"top_k": 0, "exponential_decay_length_penalty": [4, 2.0]},
    {"top_k": 0, "encoder_repetition_penalty": 1.6}, {"top_k": 0, "encoder_repetition_penalty": 0.6, "repetition_penalty": 1.2},
    {"top_k": 0, "encoder_no_repeat_ngram_size": 2}, {"top_k": 0, "encoder_no_repeat_ngram_size": 1},
]
for i, options in enumerate(sampling):
    for do_sample in (True, False):
        for new in (0, 2):
            logits = torch.randn(12) * 3
            if i % 3 == 0:                          # equal ones, where top-k ends
                logits[7] = logits[2]
            history = [3, 5, 3, 5] + [3, 5][:new]
            if i % 4 == 1:
                history = [1, 2, 3, 1] + [2, 3][:new]
            gc = GenerationConfig(do_sample=do_sample, eos_token_id=[2, 6], pad_token_id=0, num_beams=1, **options)
            gc, _ = model._prepare_generation_config(gc)
            gc._eos_token_tensor = torch.tensor([2, 6])
            if gc.min_new_tokens:
                gc.min_length = gc.min_new_tokens + 4
            chain = model._get_logits_processor(gc, input_ids_seq_length=4, device="cpu",
                                                encoder_input_ids=torch.tensor([history[:4]]))
            out = chain(torch.tensor([history]), logits[None].clone())[0]
            row = {"logits": logits.tolist(), "history": history, "n_fed": 4, "do_sample": do_sample, "options": options}
            # In f64: the last bit of an f32 softmax depends on the CPU's vector instructions.
            row["p" if do_sample else "left"] = out.double().softmax(-1).tolist() if do_sample else \
                [None if x == -torch.inf else x for x in out.tolist()]
            processed.append(row)

runs = []
options = [
    {"no_repeat_ngram_size": 1, "max_new_tokens": 12},
    {"no_repeat_ngram_size": 2, "max_new_tokens": 14},
    {"no_repeat_ngram_size": 3, "max_length": 15, "repetition_penalty": 1.2},
    {"min_new_tokens": 7, "max_new_tokens": 12, "eos": True},
    {"min_length": 13, "max_length": 16, "eos": True},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "max_new_tokens": 12, "early_stopping": True, "eos": True},
    {"num_beams": 4, "min_new_tokens": 5, "max_new_tokens": 10, "length_penalty": 0.5, "eos": True},
    {"num_beams": 2, "max_length": 14, "early_stopping": "never", "repetition_penalty": 1.3, "eos": True},
    {"suppress_tokens": "seen", "max_new_tokens": 10}, {"begin_suppress_tokens": "seen", "max_new_tokens": 6},
    {"forced_eos_token_id": 5, "max_new_tokens": 6}, {"forced_eos_token_id": 5, "num_beams": 3, "max_new_tokens": 6},
    {"do_sample": False, "temperature": 0.3, "top_k": 5, "top_p": 0.5, "min_p": 0.2, "max_new_tokens": 6},
    {"exponential_decay_length_penalty": [1, 1.1], "max_new_tokens": 14, "eos": "twice"},
    {"exponential_decay_length_penalty": [1, 1.1], "num_beams": 3, "max_new_tokens": 14, "eos": "twice"},
]
for name in ("t5-v10", "t5-v11", "llama-a", "gpt2-a", "bloom-a"):
    model = load(name)
    seq2seq = name.startswith("t5")
    f = safe_open(os.path.join(here, "models", name, "golden.safetensors"), "pt")
    ids, mask = f.get_tensor("right.input_ids"), f.get_tensor("right.attention_mask")
    prompts = [ids[r][mask[r] == 1][:9 - 2 * r] for r in range(2)]

    def run(config):
        model.generation_config = GenerationConfig.from_dict({"pad_token_id": 0, **config})
        eos = config["eos_token_id"]
        eos = eos if isinstance(eos, list) else [eos]
        out = []
        for p in prompts:
            s = model.generate(p[None], attention_mask=torch.ones_like(p[None]), use_cache=name != "t5-v11")[0].tolist()
            s = s[1:] if seq2seq else s[len(p):]
            for i, t in enumerate(s):
                if t in eos + [config.get("forced_eos_token_id")]:
                    s = s[: i + 1]
                    break
            out.append(s)
        return out

    start = {"decoder_start_token_id": 0} if seq2seq else {}
    plain = run({"max_new_tokens": 12, "eos_token_id": 2, **start})
    seen = sorted({t for s in plain for t in s[:4]} - {2})
    cases = [(dict(o), start) for o in options]
    if seq2seq:
        cases += [({"forced_bos_token_id": 7, "max_new_tokens": 6}, {"decoder_start_token_id": 3}),
                  ({"forced_bos_token_id": 7, "num_beams": 2, "begin_suppress_tokens": "seen", "max_new_tokens": 6}, start),
                  ({"max_length": 5}, {"decoder_start_token_id": 11})]
    for o, begin in cases:
        config = {k: seen if v == "seen" else v for k, v in o.items() if k != "eos"} | begin
        ends = {None: 2, True: [seen[0], seen[-1]], "twice": [seen[0], seen[0], seen[0]]}
        config["eos_token_id"] = ends[o.get("eos")]
        runs.append({"model": name, "prompts": [p.tolist() for p in prompts], "config": config, "output": run(config)})
json.dump({"processed": processed, "runs": runs}, open(os.path.join(here, "generation.json"), "w"))
print(len(processed), len(runs))
