"""tests/golden/models/half_errors.json: how far transformers' own models in bf16 and f16 are from the f32
goldens beside them, counted as tests/gpu/test_models.c counts: the largest error of a logit over the
largest logit; of a parameter's gradient the norm of its error over its own norm and 3e-3 of the norm
of all; of all gradients together likewise.  torch 2.15, transformers 5.17, on the CPU.

usage: make_half_errors.py tests/golden/models
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

def grads(model, mixtral):
    """Gradients by the names of the files: transformers 5 keeps experts stacked."""
    for key, p in model.named_parameters():
        if p.grad is None:
            continue
        if mixtral:
            key = key.replace(".mlp.", ".block_sparse_moe.")
        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        if key.endswith("experts.gate_up_proj") or key.endswith("experts.down_proj"):
            stem = key.rsplit(".", 1)[0]
            for e in range(p.shape[0]):
                if key.endswith("down_proj"):
                    yield f"{stem}.{e}.{names[2]}.weight", p.grad[e]
                else:
                    half = p.shape[1] // 2
                    yield f"{stem}.{e}.{names[0]}.weight", p.grad[e][:half]
                    yield f"{stem}.{e}.{names[1]}.weight", p.grad[e][half:]
        else:
            yield key, p.grad


root = pathlib.Path(sys.argv[1])
out = {}
for where in sorted(root.iterdir()):
    if not (where / "golden.safetensors").exists():
        continue
    golden = load_file(where / "golden.safetensors")
    if "right.logits" not in golden:
        continue
    pair = json.loads((where / "config.json").read_text())["model_type"] == "t5"
    whole = json.loads((where / "golden.json").read_text())["grad_norm"]
    row = {}
    for name, dtype in (("BF16", torch.bfloat16), ("F16", torch.float16)):
        model = (AutoModelForSeq2SeqLM if pair else AutoModelForCausalLM).from_pretrained(
            where, dtype=dtype, experts_implementation="eager")
        model.to(dtype)
        model.train()
        for m in model.modules():
            if isinstance(m, torch.nn.Dropout):
                m.p = 0.0
        worst = 0.0
        for side in ("right", "left"):
            mask = golden[f"{side}.attention_mask"]
            labels = golden[f"{side}.labels"]
            found = model(input_ids=golden[f"{side}.input_ids"], attention_mask=mask, labels=labels)
            wanted = golden[f"{side}.logits"].double()
            keep = (labels != -100 if pair else mask != 0)
            d = (found.logits.double() - wanted)[keep].abs().max().item()
            worst = max(worst, d / wanted[keep].abs().max().item())
            if side == "right":
                model.zero_grad()
                found.loss.float().backward()
                loss = found.loss.item()
        off = apart = 0.0
        for key, grad in grads(model, "mixtral" in where.name):
            want = golden.get("grad." + key)
            if want is None:
                print("no golden of", key)
                continue
            d = (grad.double() - want.double()).norm().item()
            apart += d * d
            off = max(off, d / (want.double().norm().item() + 3e-3 * whole))
        row[name] = {"logits": round(worst, 5), "gradient": round(off, 4),
                     "all": round(apart ** 0.5 / whole, 4)}
    out[where.name] = row
    print(where.name, row, flush=True)
(root / "half_errors.json").write_text(json.dumps(out, indent=1) + "\n")
