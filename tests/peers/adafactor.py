"""adafactor.py DIR - the state that ckpt-train kept of Adafactor, in transformers' hands; see optim.sh.

DIR/factored/checkpoint-2/optimizer.pt is replaced by what transformers saves after a load, bit for bit the same numbers.
"""
import os, sys

import torch
from transformers.optimization import Adafactor

D = sys.argv[1]
sd = torch.load(f"{D}/factored/checkpoint-2/optimizer.pt", weights_only=True)


def shape(s):
    return s["exp_avg_sq"].shape if "exp_avg_sq" in s else (len(s["exp_avg_sq_row"]), len(s["exp_avg_sq_col"]))


ps = [torch.nn.Parameter(torch.ones(shape(sd["state"][i]))) for i in range(len(sd["state"]))]
o = Adafactor([{"params": [ps[i] for i in g["params"]]} for g in sd["param_groups"]], lr=1e-3, scale_parameter=False, relative_step=False)
o.load_state_dict(sd)
assert all(o.state[p]["step"] == 2 and o.state[p]["RMS"] > 0 for p in ps)
kept = o.state_dict()
for i, s in sd["state"].items():
    assert list(s) == list(kept["state"][i]) and all(torch.equal(torch.as_tensor(v), torch.as_tensor(kept["state"][i][k])) for k, v in s.items())
fresh = Adafactor([torch.nn.Parameter(torch.ones(2, 2))], lr=1e-3, scale_parameter=False, relative_step=False, beta1=0.9)
assert set(fresh.param_groups[0]) <= set(sd["param_groups"][0]), "groups have all its numbers"
torch.save(kept, f"{D}/theirs.pt")
for p in ps:
    p.grad = torch.full_like(p, 1e-3)
o.step()
assert all(torch.isfinite(p).all() and (p != 1).any() for p in ps)
print(f"ok transformers' Adafactor goes on with {len(ps)} states")
os.replace(f"{D}/theirs.pt", f"{D}/factored/checkpoint-2/optimizer.pt")
os.remove(f"{D}/factored/checkpoint-2/MANIFEST.json")    # it told of ours
