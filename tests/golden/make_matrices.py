"""make_matrices.py OUT - ten steps of transformers' Adafactor and of torch's Muon (transformers 5.24, torch 2.15, on a CPU).

matrices.safetensors: start.<shape>, grad.<shape>.<step> of the shapes matrix, tall, stack and vector; for each case
<case>.<shape>.p.<step> and the states after that step, by their names in the optimizer; of Muon also
<case>.<shape>.exact.<step>, the weights where what torch computes in bfloat16 is computed in float64.
"""
import sys

import torch
import torch.optim._muon as muon
from safetensors.torch import save_file
from transformers.optimization import Adafactor

STEPS, KEPT = 10, (1, 2, 10)
torch.manual_seed(6)
shapes = {"matrix": (12, 21), "tall": (24, 7), "stack": (2, 5, 6), "vector": (33,)}
kept = {f"start.{k}": torch.randn(s) * 0.1 for k, s in shapes.items()}
for step in range(1, STEPS + 1):
    for k, s in shapes.items():
        kept[f"grad.{k}.{step}"] = torch.randn(s) * torch.logspace(-3, 0, s[-1])
cases = {
    "trainer": (Adafactor, dict(lr=1e-2, scale_parameter=False, relative_step=False, weight_decay=0.1)),
    "relative": (Adafactor, dict(lr=None, scale_parameter=True, relative_step=True, warmup_init=False)),
    "warm": (Adafactor, dict(lr=None, scale_parameter=False, relative_step=True, warmup_init=True, clip_threshold=0.5)),
    "first": (Adafactor, dict(lr=1e-2, scale_parameter=True, relative_step=False, beta1=0.9, decay_rate=-0.5, eps=(1e-8, 1e-2))),
    "muon": (torch.optim.Muon, dict(lr=1e-2, weight_decay=0.1)),
    "moonshot": (torch.optim.Muon, dict(lr=1e-2, weight_decay=0.1, momentum=0.8, nesterov=False, adjust_lr_fn="match_rms_adamw")),
}
narrow = muon._zeropower_via_newtonschulz


def wide(update, *args):
    short, torch.bfloat16 = torch.bfloat16, torch.float64
    try:
        return narrow(update, *args).to(update.dtype)
    finally:
        torch.bfloat16 = short


runs = [(name, kind, kw, False) for name, (kind, kw) in cases.items()]
for name, kind, kw, exact in runs + [(n, k, kw, True) for n, k, kw, _ in runs if k is torch.optim.Muon]:
    muon._zeropower_via_newtonschulz = wide if exact else narrow
    of = [k for k in shapes if kind is Adafactor or len(shapes[k]) == 2]
    p = {k: torch.nn.Parameter(kept[f"start.{k}"].clone()) for k in of}
    o = kind(p.values(), **kw)
    for step in range(1, STEPS + 1):
        for k in of:
            p[k].grad = kept[f"grad.{k}.{step}"].clone()
        o.step()
        for k in of:
            if step in KEPT:
                kept[f"{name}.{k}.{'exact' if exact else 'p'}.{step}"] = p[k].detach().clone()
                for s, v in o.state[p[k]].items():
                    if torch.is_tensor(v) and not exact:
                        kept[f"{name}.{k}.{s}.{step}"] = v.clone()
save_file(kept, f"{sys.argv[1]}/matrices.safetensors")
