"""muon.py DIR - a step of ckpt-train's Muon, made again by torch's own class from its files; see optim.sh.

DIR/muon/checkpoint-2/optimizer.pt is replaced by what torch's optimizers save after a load, bit for bit the same numbers.
"""
import os, sys

import torch
import torch.optim._muon as muon
from safetensors.torch import load_file

D = sys.argv[1]
old, new = (torch.load(f"{D}/muon/checkpoint-{i}/optimizer.pt", weights_only=True) for i in (2, 3))
w, v = (load_file(f"{D}/muon/checkpoint-{i}/model.safetensors") for i in (2, 3))
ORDER = ("query_key_value", "self_attention.dense", "dense_h_to_4h", "dense_4h_to_h")
hidden = sorted((k for k in w if w[k].ndim == 2 and ".h." in k), key=lambda k: (int(k.split(".h.")[1].split(".")[0]), [p in k for p in ORDER].index(True)))
mine = [g for g in old["param_groups"] if "ns_steps" in g]
rest = [g for g in old["param_groups"] if "betas" in g]
assert len(mine) == 1 and len(mine) + len(rest) == len(old["param_groups"]) and len(mine[0]["params"]) == len(hidden)


def part(groups):
    """Those groups as the state of an optimizer of their own."""
    ids = [i for g in groups for i in g["params"]]
    at = {i: n for n, i in enumerate(ids)}
    return {"state": {at[i]: old["state"][i] for i in ids if i in old["state"]},
            "param_groups": [{**g, "params": [at[i] for i in g["params"]]} for g in groups]}, ids


def load(kind, groups, ps, **kw):
    sd, ids = part(groups)
    o = kind([{"params": [ps[i] for i in g["params"]]} for g in groups], **kw)
    assert set(o.param_groups[0]) <= set(groups[0]), "groups have all its keys"
    o.load_state_dict(sd)
    kept = o.state_dict()
    for n, i in enumerate(ids):
        assert set(kept["state"][n]) == set(old["state"][i]) and all(torch.equal(old["state"][i][k], x) for k, x in kept["state"][n].items())
        old["state"][i] = {k: x.clone() for k, x in kept["state"][n].items()}    # what follows steps it
    return o


shape = lambda s: next(t.shape for k, t in s.items() if k != "step")
others = {i: torch.nn.Parameter(torch.ones(shape(old["state"][i]))) for g in rest for i in g["params"]}
o = load(torch.optim.AdamW, rest, others, lr=1e-3)
for p in others.values():
    p.grad = torch.full_like(p, 1e-3)
o.step()
narrow = muon._zeropower_via_newtonschulz


def wide(update, *args):
    short, torch.bfloat16 = torch.bfloat16, torch.float64
    try:
        return narrow(update, *args).to(update.dtype)
    finally:
        torch.bfloat16 = short


for form, most in ((wide, 1e-3), (narrow, 0.15)):
    muon._zeropower_via_newtonschulz = form
    ps = {i: torch.nn.Parameter(w[k].clone()) for i, k in zip(mine[0]["params"], hidden)}
    o = load(torch.optim.Muon, mine, ps)
    m = mine[0]["momentum"]
    for i, p in ps.items():
        a, b = old["state"][i]["momentum_buffer"].double(), new["state"][i]["momentum_buffer"].double()
        p.grad = ((b - m * a) / (1 - m)).float()
    o.step()
    for i, k in zip(mine[0]["params"], hidden):
        apart, moved = (ps[i] - v[k]).norm(), (w[k] - v[k]).norm()
        assert moved > 0 and apart <= most * moved, f"{k}: {apart} apart, moved {moved}"
print(f"ok torch's Muon goes on with {len(hidden)} matrices: the same step to 1e-3 of it, within 0.15 as torch has it, in bfloat16")
torch.save(old, f"{D}/theirs.pt")
os.replace(f"{D}/theirs.pt", f"{D}/muon/checkpoint-2/optimizer.pt")
os.remove(f"{D}/muon/checkpoint-2/MANIFEST.json")    # it told of ours
