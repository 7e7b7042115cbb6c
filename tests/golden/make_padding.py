#!/usr/bin/env python3
"""Losses of runs whose labels are copies of padded inputs: padding to a fixed length, loss on it too.

Ran with: torch 2.15.0 / transformers 5.23.0, on a CPU: python make_padding.py OUT

  rows.jsonl    24 samples of 2 to 12 ids
  losses.json   by model and side: loss of six steps of four samples, padded to 12 with pad_token_id, attention
                mask 0 on padding, labels = input_ids.clone(); then of the first four rows again, without training

Models are those of ../models.  AdamW (lr 1e-3, weight decay 0), constant schedule, clipping at 1, dropout 0, eager attention.
"""
import json, os, random, sys

import torch
from transformers import AutoModelForCausalLM

out, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
rows = []
random.seed(5)
for _ in range(24):
    rows.append([random.randrange(4, 40) for _ in range(random.randrange(2, 13))])
os.makedirs(out, exist_ok=True)
with open(f"{out}/rows.jsonl", "w") as f:
    f.writelines(json.dumps({"input_ids": r}) + "\n" for r in rows)


def batch(some, side, pad, to=12):
    ids, mask = [], []
    for r in some:
        fill, ones = [pad] * (to - len(r)), [1] * len(r)
        zeros = [0] * len(fill)
        ids.append(fill + r if side == "left" else r + fill)
        mask.append(zeros + ones if side == "left" else ones + zeros)
    ids = torch.tensor(ids)
    return {"input_ids": ids, "attention_mask": torch.tensor(mask), "labels": ids.clone()}


losses = {}
for name, side in (("bloom-a", "left"), ("bloom-a", "right"), ("llama-a", "right"), ("bloom-b", "left")):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(f"{here}/models/{name}", dtype=torch.float32, attn_implementation="eager")
    model.train()
    pad = model.config.pad_token_id
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    seen = []
    for s in range(6):
        loss = model(**batch(rows[4 * s:4 * s + 4], side, pad)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        seen.append(loss.item())
    model.eval()
    with torch.no_grad():
        seen.append(model(**batch(rows[:4], side, pad)).loss.item())
    losses[f"{name} {side}"] = seen
json.dump(losses, open(f"{out}/losses.json", "w"), indent=1)
