#!/usr/bin/env python3
"""The peers' half of lora.sh.

usage: lora.py make MODELS DIR      for each MODEL@KIND.ours in DIR an adapter of PEFT's own, .theirs
       lora.py check MODELS DIR     logits of both, of ours as ckpt-eval wrote them
"""
import json
import os
import sys
import warnings
warnings.filterwarnings("ignore")
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

what, models, D = sys.argv[1:]
bad = 0


def load(name):
    kind = AutoModelForSeq2SeqLM if name.startswith("t5") else AutoModelForCausalLM
    plain = {"experts_implementation": "eager"} if "mo" in name or "mix" in name else {}    # sizes too odd for others
    return kind.from_pretrained(f"{models}/{name}", dtype=torch.float32, attn_implementation="eager", **plain).eval()


def make(path):
    name = os.path.basename(path).split("@")[0]
    config = json.load(open(f"{path}/adapter_config.json", encoding="utf-8"))
    keys = ("r", "lora_alpha", "target_modules", "modules_to_save", "bias", "use_rslora", "use_dora", "rank_pattern",
            "alpha_pattern", "fan_in_fan_out", "task_type", "trainable_token_indices")
    torch.manual_seed(11)
    model = get_peft_model(load(name), LoraConfig(init_lora_weights=False, **{k: config[k] for k in keys}))
    with torch.no_grad():
        for k, p in model.named_parameters():
            if p.requires_grad and "lora_" not in k:        # copies and biases: not as they were
                p.add_(torch.randn_like(p) * 0.05)
            if "lora_B" in k:                               # large changes only magnify rounding
                p.mul_(0.1)
    model.save_pretrained(path.replace(".ours", ".theirs"))


def check(path):
    global bad
    name = os.path.basename(path).split("@")[0]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(load(name), path).eval()
    missing = [str(w.message)[:120] for w in told if "missing" in str(w.message).lower()]
    plain = load(name)
    ours = safe_open(f"{D}/{os.path.basename(path)}.safetensors", "pt").get_tensor("logits")
    worst = moved = 0.0
    for i, line in enumerate(open(f"{models}/{name}/rows.jsonl", encoding="utf-8")):
        row = json.loads(line)
        ids = torch.tensor([row["input_ids"]])
        labels = torch.tensor([row["labels"]])
        more = {"labels": labels, "attention_mask": torch.tensor([row["attention_mask"]])} if model.config.is_encoder_decoder else {}
        with torch.no_grad():
            theirs, before = model(input_ids=ids, **more).logits[0], plain(input_ids=ids, **more).logits[0]
        n = len(theirs)
        there = ours[i, :n].abs().sum(-1) > 0               # what the row's mask leaves out is zeros
        worst = max(worst, (theirs - ours[i, :n])[there].abs().max().item() / theirs.abs().max().item())
        moved = max(moved, (theirs - before).abs().max().item())
    good = worst <= 2e-5 and moved > 1e-3 and not missing
    print("ok" if good else "not ok", f"{os.path.basename(path)}: logits beside PEFT's {worst:.1e}, the adapter moves them {moved:.2g}",
          *missing, flush=True)
    bad += not good


for entry in sorted(os.listdir(D)):
    if what == "make" and entry.endswith(".ours"):
        make(f"{D}/{entry}")
    if what == "check" and entry.endswith((".ours", ".theirs")):
        try:
            check(f"{D}/{entry}")
        except Exception as e:                              # one that fails does not hide the others
            print("not ok", entry, repr(e)[:300], flush=True)
            bad += 1
sys.exit(1 if bad else 0)
