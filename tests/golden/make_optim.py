"""make_optim.py OUT - what bitsandbytes' and torch's optimizer tools keep (bitsandbytes 0.50.2, torch 2.15, on a CPU).

adamw8bit.safetensors: three steps of AdamW8bit over 4100 elements, of which before.* and after.* of
each step hold parameter, codes and scales, and grad.* its gradient; qmap1 and qmap2 are its tables.
scaler.pt: GradScaler.state_dict() after seven good steps.
"""
import sys

import bitsandbytes as bnb
import torch
from safetensors.torch import save_file

out = sys.argv[1]
torch.manual_seed(3)
p = torch.nn.Parameter(torch.randn(4100))
o = bnb.optim.AdamW8bit([p], lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
kept = {}


def note(when, step):
    s = o.state[p]
    kept[f"{when}.{step}.p"] = p.detach().clone()
    for k in ("state1", "state2", "absmax1", "absmax2"):
        kept[f"{when}.{step}.{k}"] = s[k].clone()


for step in range(1, 4):
    p.grad = torch.randn(4100) * torch.logspace(-4, 0, 4100)
    kept[f"grad.{step}"] = p.grad.clone()
    if step > 1:
        note("before", step)
    else:
        kept["before.1.p"] = p.detach().clone()
    o.step()
    note("after", step)
kept["qmap1"], kept["qmap2"] = o.state[p]["qmap1"].clone(), o.state[p]["qmap2"].clone()
kept = {k: v for k, v in kept.items() if not (k.startswith("before") and k[7] > "1")}   # as after the step before
save_file(kept, f"{out}/adamw8bit.safetensors")
scaler = torch.amp.GradScaler("cpu")
scaler.load_state_dict({"scale": 4096.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7})
torch.save(scaler.state_dict(), f"{out}/scaler.pt")
