"""make_rules.py OUT - ten steps of torch's SGD and of Lion (torch 2.15, on a CPU, float32).

rules.safetensors: start.p, grad.<step>, and for each case <case>.p.<step> and <case>.m.<step> after that step.  Lion is
written out from the paper (Chen et al. 2023, algorithm 2), as bitsandbytes' Lion needs a GPU for small tensors.
"""
import sys

import torch
from safetensors.torch import save_file

N, STEPS, LR = 1024, 10, 3e-3
torch.manual_seed(5)
kept = {"start.p": torch.randn(N)}
for step in range(1, STEPS + 1):
    kept[f"grad.{step}"] = torch.randn(N) * torch.logspace(-4, 0, N)
cases = {
    "sgd": dict(),
    "momentum": dict(momentum=0.9, weight_decay=0.1),
    "dampened": dict(momentum=0.8, dampening=0.25),
    "nesterov": dict(momentum=0.9, nesterov=True, weight_decay=0.1),
}
for name, kw in cases.items():
    p = torch.nn.Parameter(kept["start.p"].clone())
    o = torch.optim.SGD([p], lr=LR, **kw)
    for step in range(1, STEPS + 1):
        p.grad = kept[f"grad.{step}"].clone()
        o.step()
        kept[f"{name}.p.{step}"] = p.detach().clone()
        if "momentum" in kw:
            kept[f"{name}.m.{step}"] = o.state[p]["momentum_buffer"].clone()
p, m = kept["start.p"].clone(), torch.zeros(N)
for step in range(1, STEPS + 1):
    g = kept[f"grad.{step}"]
    p.mul_(1 - LR * 0.1)
    p.add_(torch.sign(m * 0.9 + g * (1 - 0.9)), alpha=-LR)
    m.mul_(0.99).add_(g, alpha=1 - 0.99)
    kept[f"lion.p.{step}"], kept[f"lion.m.{step}"] = p.clone(), m.clone()
kept = {k: v for k, v in kept.items() if k.startswith(("start", "grad")) or k.endswith((".1", ".2", ".10"))}
save_file(kept, f"{sys.argv[1]}/rules.safetensors")
