#!/usr/bin/env python3
"""Perplexities of long rows, by the loop of "Perplexity of fixed-length models" in transformers' documentation.

Made with: torch 2.15.0 CPU fp32, transformers 5.24.0.  Usage: make_perplexity.py [OUT]
perplexity.json: rows of ids; per model, window and stride: the mean loss of each row alone, its tokens, and both of all rows.
"""
import json, os, random, sys
import torch
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "perplexity.json")
rng = random.Random(21)
rows = [[rng.randrange(3, 200) for _ in range(n)] for n in (100, 16, 9, 41, 64)]


def loop(model, ids, max_length, stride):
    encodings = torch.tensor([ids])
    seq_len = encodings.size(1)
    nll_sum, n_tokens, prev_end_loc = 0.0, 0, 0
    for begin_loc in range(0, seq_len, stride):
        end_loc = min(begin_loc + max_length, seq_len)
        trg_len = end_loc - prev_end_loc
        input_ids = encodings[:, begin_loc:end_loc]
        target_ids = input_ids.clone()
        target_ids[:, :-trg_len] = -100
        with torch.no_grad():
            neg_log_likelihood = model(input_ids, labels=target_ids).loss
        num_valid_tokens = (target_ids != -100).sum().item()
        num_loss_tokens = num_valid_tokens - target_ids.size(0)
        nll_sum += neg_log_likelihood.double().item() * num_loss_tokens
        n_tokens += num_loss_tokens
        prev_end_loc = end_loc
        if end_loc == seq_len:
            break
    return nll_sum, n_tokens


golden = {"rows": rows, "of": []}
for name in ("gpt2-a", "llama-a", "opt-a", "bloom-a"):
    model = AutoModelForCausalLM.from_pretrained(os.path.join(here, "models", name), dtype=torch.float32).eval()
    for window, stride in ((16, 16), (16, 5), (32, 8), (24, 1)):
        each = [loop(model, r, window, stride) for r in rows]
        nll, n = (sum(x[k] for x in each) for k in (0, 1))
        golden["of"].append({"model": name, "window": window, "stride": stride, "loss": nll / n, "tokens": n,
                             "perplexity": float(torch.exp(torch.tensor(nll / n, dtype=torch.float64)))})
json.dump(golden, open(out, "w"), indent=0)
