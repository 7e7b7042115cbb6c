#!/usr/bin/env python3
"""The peers' half of models.sh: fresh weights and the states of optimizer.pt, family by family.

usage: models.py DIR    DIR: of each NAME the config NAME.json, fresh weights NAME/, a step's
                        gradients NAME.grads and the run that step belongs to, NAME.run/
"""
import glob
import json
import math
import os
import re
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, Trainer, TrainingArguments

D = sys.argv[1]
bad = 0


def check(ok, what):
    global bad
    print("ok" if ok else "not ok", what, flush=True)
    bad += not ok


def kind(config):
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def alike(ours, theirs):
    """What differs between two draws of what should be one distribution, or None."""
    ours, theirs = ours.double(), theirs.double()
    if ours.shape != theirs.shape:
        return f"shape {tuple(ours.shape)}, there {tuple(theirs.shape)}"
    if (theirs == theirs.flatten()[0]).all():
        return None if torch.equal(ours, theirs) else f"all {theirs.flatten()[0]} there"
    zeros = [set(((x == 0).all(-1).nonzero().flatten() if x.dim() == 2 else torch.empty(0)).tolist())
             for x in (ours, theirs)]
    if zeros[0] != zeros[1]:
        return f"rows of zeros {zeros[0]}, there {zeros[1]}"
    a, b = ours[ours != 0], theirs[theirs != 0]
    n, std = min(len(a), len(b)), b.std().item()
    if abs(a.std().item() / std - 1) > 5 * math.sqrt(1 / n):
        return f"deviation {a.std():.4g}, there {std:.4g}"
    if abs((a.mean() - b.mean()).item()) > 5 * std * math.sqrt(2 / n):
        return f"mean {a.mean():.4g}, there {b.mean():.4g}"
    if abs((a / std).pow(4).mean().item() - 3) > 5 * math.sqrt(96 / n) + 0.1:
        return "no normal distribution"
    return None


def gradient(grads, name):
    """A parameter's gradient by the names of files; experts put together."""
    if name in grads:
        return grads[name]
    fused = re.fullmatch(r"(.*)\.mlp\.experts\.(gate_up|down)_proj", name)
    if fused is None:
        return None
    layer, part = fused.groups()
    for path, gate, up, down in ((f"{layer}.mlp.experts", "gate_proj", "up_proj", "down_proj"),
                                 (f"{layer}.block_sparse_moe.experts", "w1", "w3", "w2")):
        if f"{path}.0.{down}.weight" not in grads:
            continue
        n = sum(1 for k in grads if re.fullmatch(re.escape(path) + rf"\.\d+\.{down}\.weight", k))
        return torch.stack([grads[f"{path}.{e}.{down}.weight"] if part == "down" else
                            torch.cat([grads[f"{path}.{e}.{gate}.weight"], grads[f"{path}.{e}.{up}.weight"]])
                            for e in range(n)])
    return None


for path in sorted(glob.glob(f"{D}/*.json")):
    name = os.path.basename(path)[:-5]
    config = AutoConfig.from_pretrained(path)
    torch.manual_seed(1)
    theirs = kind(config).from_config(config)
    ours = kind(config).from_pretrained(f"{D}/{name}", dtype=torch.float32)
    fresh = dict(theirs.named_parameters())
    mine = dict(ours.named_parameters())
    wrong = [f"{k}: {why}" for k in fresh if (why := alike(mine[k].detach(), fresh[k].detach()))]
    check(not wrong and fresh.keys() == mine.keys(), f"{name}: fresh weights as transformers' make them{'; '.join([''] + wrong[:4])}")

    # The optimizer that HF Trainer makes takes the state, and each moment is that parameter's.
    trainer = Trainer(model=ours, args=TrainingArguments(
        output_dir=f"{D}/out", optim="adamw_torch", weight_decay=0.01, use_cpu=True, report_to=[]))
    optimizer = trainer.create_optimizer()
    grads = load_file(f"{D}/{name}.grads")
    grads = {re.sub(r"\.block_sparse_moe\.gate\.", ".mlp.gate.", k): v for k, v in grads.items()}
    norm = math.sqrt(sum(g.double().pow(2).sum().item() for g in grads.values()))
    names = {p: k for k, p in ours.named_parameters()}
    try:
        optimizer.load_state_dict(torch.load(f"{D}/{name}.run/checkpoint-1/optimizer.pt", weights_only=True))
        wrong = []
        for group in optimizer.param_groups:
            for p in group["params"]:
                g = gradient(grads, names[p])
                moment = optimizer.state[p]["exp_avg"]
                wanted = None if g is None else 0.1 * g * min(1.0, 1.0 / (norm + 1e-6))
                if wanted is None or moment.shape != p.shape or \
                        (moment - wanted).abs().max() > 1e-5 * wanted.abs().max() + 1e-12:
                    wrong.append(names[p])
        check(not wrong, f"{name}: optimizer.pt has the moments of each of transformers' parameters{'; '.join([''] + wrong[:4])}")
    except (ValueError, KeyError, RuntimeError) as e:
        check(False, f"{name}: optimizer.pt is taken: {e}")
for path in sorted(glob.glob(f"{D}/aux.*")):
    name = os.path.basename(path)
    model = AutoModelForCausalLM.from_pretrained(f"{path}/model", dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager")
    row = json.loads(open(f"{path}/row.jsonl", encoding="utf-8").readline())
    out = model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]]))
    out.loss.backward()
    events = map(json.loads, open(f"{path}/run/metrics.jsonl", encoding="utf-8"))
    ours = next(e for e in events if "loss" in e)
    grads = {re.sub(r"\.block_sparse_moe\.gate\.", ".mlp.gate.", k): v for k, v in load_file(f"{path}/grads").items()}
    tied = model.config.tie_word_embeddings and "lm_head.weight" not in grads
    wrong = [k for k, p in model.named_parameters()
             if (g := gradient(grads, k)) is None or (g - p.grad).abs().max() > 2e-5 * p.grad.abs().max() + 1e-7]
    check(tied and out.aux_loss.item() > 0 and not wrong and abs(ours["loss"] / out.loss.item() - 1) < 1e-5,
          f"{name}: tied, the loss {out.loss.item():.6f} with the routers' {out.aux_loss.item():.4f} and all gradients"
          f"{'; '.join([''] + wrong[:4])}")
sys.exit(1 if bad else 0)
