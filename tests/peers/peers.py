#!/usr/bin/env python3
"""The peers' half of check.sh: open a run, its merged model and its logits with the real tools.

usage: peers.py DIR     DIR: zero3/checkpoint-4, single/checkpoint-4, merged, rows.jsonl,
                        logits.safetensors
"""
import json
import random
import sys
import numpy
import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

D = sys.argv[1]
bad = 0


def check(ok, what):
    global bad
    print("ok" if ok else "not ok", what, flush=True)
    bad += not ok


merged = load_file(f"{D}/merged/model.safetensors")
peer = get_fp32_state_dict_from_zero_checkpoint(f"{D}/zero3/checkpoint-4")
check(len(merged) > 0 and set(merged) <= set(peer), "zero_to_fp32 finds the tensors of the merge")
check(all(torch.equal(peer[k], merged[k]) for k in merged), "zero_to_fp32 gives the same bits")
check(all(any(peer[k] is t or torch.equal(peer[k], t) for t in merged.values())
          for k in set(peer) - set(merged)), "what only zero_to_fp32 names is tied")

model = AutoModelForCausalLM.from_pretrained(f"{D}/merged").eval()
tokenizer = AutoTokenizer.from_pretrained(f"{D}/merged")
ours = load_file(f"{D}/logits.safetensors")["logits"]
worst = 0.0
for row, line in enumerate(open(f"{D}/rows.jsonl", encoding="utf-8")):
    record = json.loads(line)
    ids = tokenizer(record["instruction"] + " " + record["output"]).input_ids + [tokenizer.eos_token_id]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    mine = int(ours[row].any(dim=-1).sum())
    check(mine == len(ids), f"row {row} has {len(ids)} tokens for both ({mine} here)")
    n = min(mine, len(ids))
    worst = max(worst, (theirs[:n] - ours[row, :n]).abs().max().item())
check(worst <= 1e-4, f"transformers computes the same logits (largest difference {worst:.1e})")

for run, ranks in ("single", 1), ("zero3", 2):
    for rank in range(ranks):
        name = "rng_state.pth" if ranks == 1 else f"rng_state_{rank}.pth"
        state = torch.load(f"{D}/{run}/checkpoint-4/{name}", weights_only=False)
        random.setstate(state["python"])
        numpy.random.set_state(state["numpy"])
        torch.set_rng_state(state["cpu"])
        draws = random.random(), numpy.random.rand(), torch.rand(1).item()
        check(all(0 <= x < 1 for x in draws), f"{run}/{name} sets the three streams")
optimizer = torch.load(f"{D}/single/checkpoint-4/optimizer.pt", weights_only=True)
adamw = torch.optim.AdamW([torch.nn.Parameter(torch.empty_like(optimizer["state"][i]["exp_avg"]))
                           for g in optimizer["param_groups"] for i in g["params"]])
check(len(optimizer["state"]) == sum(1 for g in adamw.param_groups for _ in g["params"]),
      "optimizer.pt has a state for each parameter")
scheduler = torch.load(f"{D}/single/checkpoint-4/scheduler.pt", weights_only=True)
check(scheduler["last_epoch"] == 4, "scheduler.pt counts the steps")
sys.exit(1 if bad else 0)
