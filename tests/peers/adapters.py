#!/usr/bin/env python3
"""The peers' half of adapters.sh: PEFT loads what ckpt-merge wrote, and finds the same model.

usage: adapters.py GOLDEN DIR     DIR: NAME-full, NAME-adapter (extracted), NAME-same (--to peft)
"""
import os
import sys
import warnings
warnings.filterwarnings("ignore")
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

golden, D = sys.argv[1:]
bad = 0


def check(ok, what):
    global bad
    print("ok" if ok else "not ok", what, flush=True)
    bad += not ok


def load(path, rows=None):
    cls = AutoModelForSeq2SeqLM if "t5" in path else AutoModelForCausalLM
    model = cls.from_pretrained(path, dtype=torch.float32).eval()
    if rows and rows != model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(rows, mean_resizing=False)
    return model


def logits(model):
    ids = torch.tensor([[3, 9, 4, 17, 8, 5]])
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


for name in sorted(f[:-5] for f in os.listdir(D) if f.endswith("-full")):
    full = load(f"{D}/{name}-full")
    rows = full.get_input_embeddings().weight.shape[0]
    wanted = logits(full)
    for kind in "adapter", "same":
        if not os.path.isdir(f"{D}/{name}-{kind}"):
            continue
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = PeftModel.from_pretrained(load(f"{golden}/{name}/base", rows), f"{D}/{name}-{kind}").eval()
        missing = [str(w.message)[:200] for w in told if "missing" in str(w.message).lower()]
        check(not missing, f"{name}-{kind}: PEFT finds every tensor {missing}")
        keys = set(load_file(f"{D}/{name}-{kind}/adapter_model.safetensors"))
        apart = (logits(model) - wanted).abs().max().item()
        check(apart < 2e-5, f"{name}-{kind}: {len(keys)} tensors, logits as the merged model's ({apart:.1e})")
sys.exit(1 if bad else 0)
