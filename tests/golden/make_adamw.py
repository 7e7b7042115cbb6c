"""make_adamw.py OUT - adamw.safetensors: what torch.optim.AdamW leaves after steps (torch 2.15, on a CPU).

Elements of many sizes, with weight decay (decay.*) and without (plain.*): start.p, grad.1 to grad.3,
and of the loop over parameters (foreach=False, fused=False) decay.p, exp_avg and exp_avg_sq after
one step and after three.  foreach=True gives the same bits; fused=True, HF Trainer's default, is
printed beside them: it differs by an ulp or so of the larger of a weight and its step.  Learning rate, betas and epsilon
are numbers that no float is.
"""
import sys

import torch
from safetensors.torch import save_file

torch.manual_seed(11)
N = 1027
start = torch.randn(N) * torch.logspace(-3, 1, N)
grads = [torch.randn(N) * torch.logspace(-6, 1, N) for _ in range(3)]
kept = {"start.p": start} | {f"grad.{k + 1}": g for k, g in enumerate(grads)}


def steps(decay, **how):
    p = torch.nn.Parameter(start.clone())
    o = torch.optim.AdamW([p], lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay, **how)
    out = {}
    for k, g in enumerate(grads):
        p.grad = g.clone()
        o.step()
        if k != 1:
            s = o.state[p]
            out |= {f"p.{k + 1}": p.detach().clone(), f"exp_avg.{k + 1}": s["exp_avg"].clone(),
                    f"exp_avg_sq.{k + 1}": s["exp_avg_sq"].clone()}
    return out


for name, decay in (("decay", 0.1), ("plain", 0.0)):
    loop = steps(decay, foreach=False, fused=False)
    many = steps(decay, foreach=True)
    fused = steps(decay, fused=True)
    for k, x in loop.items():
        kept[f"{name}.{k}"] = x
        far = ((fused[k] - x).abs() / (x.abs() + (3e-3 if k.startswith("p") else 1e-30))).max().item()
        print(f"{name}.{k}: foreach {'the same' if torch.equal(many[k], x) else (many[k] - x).abs().max().item()}, "
              f"fused within {far:.2g}")
save_file(kept, f"{sys.argv[1]}/adamw.safetensors")
