"""optim.py DIR - states that ckpt-train kept, in the hands of who defined them; see optim.sh.

DIR/coded/checkpoint-2/optimizer.pt is replaced by what bitsandbytes saves after a load and a step.
"""
import os, sys

import bitsandbytes as bnb
import torch

D = sys.argv[1]


def load(run, name):
    return torch.load(f"{D}/{run}/checkpoint-2/{name}", weights_only=True)


def made(states, shape, kind, **opts):
    ps = [torch.nn.Parameter(torch.zeros(shape(states["state"][i]))) for i in range(len(states["state"]))]
    o = kind([{"params": [ps[i] for i in g["params"]], "weight_decay": g["weight_decay"]} for g in states["param_groups"]], lr=1e-3, **opts)
    o.load_state_dict(states)
    for p in ps:
        p.grad = torch.full_like(p, 1e-3)
    return ps, o


sd = load("coded", "optimizer.pt")
Q = "__bnb_optimizer_quant_state__"
ps, o = made(sd, lambda s: s[Q]["state1"].shape, bnb.optim.AdamW8bit)
coded = [i for i in range(len(ps)) if sd["state"][i][Q]["state1"].dtype == torch.uint8]
assert coded and len(coded) < len(ps), "some are coded, some are not"
for i, p in enumerate(ps):
    for k in ("state1", "state2") + (("absmax1", "absmax2", "qmap1", "qmap2") if i in coded else ()):
        assert torch.equal(o.state[p][k], sd["state"][i][Q][k]), (i, k)
    assert o.state[p]["step"] == 2
    if i in coded:
        assert p.numel() >= 4096 and o.state[p]["absmax1"].numel() == -(-p.numel() // 256)
        for signed, k in ((True, "qmap1"), (False, "qmap2")):
            assert torch.allclose(o.state[p][k], bnb.functional.create_dynamic_map(signed=signed), rtol=1e-5, atol=0)
o.step()
assert all(torch.isfinite(p).all() and p.abs().sum() > 0 for p in ps)
print(f"ok bitsandbytes goes on with {len(coded)} coded states of {len(ps)}")
os.replace(f"{D}/coded/checkpoint-2/optimizer.pt", f"{D}/ours.pt")
torch.save(o.state_dict(), f"{D}/coded/checkpoint-2/optimizer.pt")
os.remove(f"{D}/coded/checkpoint-2/MANIFEST.json")      # it told of ours

sd = load("bf16", "optimizer.pt")
assert all(s["exp_avg"].dtype == s["exp_avg_sq"].dtype == torch.bfloat16 and s["exp_avg_sq"].min() >= 0 for s in sd["state"].values())
ps, o = made(sd, lambda s: s["exp_avg"].shape, torch.optim.AdamW)
o.step()
print("ok torch goes on with moments of bfloat16")

scaler = torch.amp.GradScaler("cpu")
scaler.load_state_dict(load("half", "scaler.pt"))
assert scaler.get_scale() == 65536.0 and scaler.get_growth_interval() == 1000
print("ok torch's GradScaler goes on with the scale")
