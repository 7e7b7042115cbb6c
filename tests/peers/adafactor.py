"""adafactor.py DIR [experts] - Adafactor's steps and states that ckpt-train kept, in transformers' hands; see optim.sh.

DIR/factored/checkpoint-2/optimizer.pt is replaced by what transformers saves after a load, bit for bit the same numbers.

With experts: three steps of a Mixtral beside those of ckpt-train.  DIR has moe-base, four.jsonl (every step has all rows) and
the runs moe-1 of one rank and moe-2 of two; moe-1/checkpoint-2 gets the states of experts one by one, as transformers 4 has them.
"""
import json, os, sys

import torch
from transformers import AutoModelForCausalLM
from transformers.optimization import Adafactor

D = sys.argv[1]


def states():
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


def experts():
    rows = [json.loads(line) for line in open(f"{D}/four.jsonl")]
    ids, labels = (torch.tensor([r[k] for r in rows]) for k in ("input_ids", "labels"))
    model = AutoModelForCausalLM.from_pretrained(f"{D}/moe-base", dtype=torch.float32)
    stacks = [n for n, p in model.named_parameters() if p.dim() == 3]
    assert len(stacks) == 4, stacks
    flat = [p for n, p in model.named_parameters() if n.endswith("norm.weight")]
    rest = [p for n, p in model.named_parameters() if not n.endswith("norm.weight")]
    o = Adafactor([{"params": rest, "weight_decay": 0.01}, {"params": flat, "weight_decay": 0.0}], lr=1e-3, relative_step=False, scale_parameter=True,
                  clip_threshold=0.5, beta1=0.9)
    losses = []
    for _ in range(3):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        o.step()
        o.zero_grad()
        losses.append(loss.item())
    theirs = {n: p.detach() for n, p in model.named_parameters()}
    for run in ("moe-1", "moe-2"):
        ours = [json.loads(line)["loss"] for line in open(f"{D}/{run}/metrics.jsonl") if '"loss"' in line]
        assert len(ours) == 3 and all(abs(a - b) < 2e-6 * b for a, b in zip(ours, losses)), (ours, losses)
        saved = AutoModelForCausalLM.from_pretrained(f"{D}/{run}", dtype=torch.float32)
        for n, p in saved.named_parameters():
            moved = (theirs[n] - p).abs().max().item()
            assert moved < 1e-6, (run, n, moved)
        sd = torch.load(f"{D}/{run}/checkpoint-3/optimizer.pt", weights_only=True)
        names = [n for n, p in model.named_parameters() if p.dim() > 1] + [n for n, p in model.named_parameters() if p.dim() == 1]
        mine = {n: sd["state"][i] for i, n in enumerate(names)}
        for n, p in model.named_parameters():
            for k, v in o.state[p].items():
                if k != "step" and (run == "moe-1" or k != "exp_avg"):
                    d = (mine[n][k] - v).abs().max().item() / (v.abs().max().item() + 1e-30)
                    assert mine[n][k].shape == v.shape and d < 1e-4, (run, n, k, d)
    print(f"ok {len(stacks)} tensors of experts are stepped as by transformers' Adafactor, by one rank and by two")
    o.load_state_dict(torch.load(f"{D}/moe-1/checkpoint-3/optimizer.pt", weights_only=True))
    print("ok and it loads their states")

    sd = torch.load(f"{D}/moe-1/checkpoint-2/optimizer.pt", weights_only=True)
    states, groups, n = {}, [], 0
    for g in sd["param_groups"]:
        first = n
        for i in g["params"]:
            s = sd["state"][i]
            if s["exp_avg"].dim() < 3:
                parts = [s]
            elif names[i].endswith("down_proj"):
                parts = []              # they come with gate and up, expert by expert
            else:
                down, F = sd["state"][i + 1], s["exp_avg"].shape[1] // 2
                assert names[i + 1].endswith("down_proj"), names[i + 1]
                cut = lambda t, e, rows: {"step": 2, "exp_avg": t["exp_avg"][e, rows].clone(), "exp_avg_sq_row": t["exp_avg_sq_row"][e, rows].clone(),
                                          "exp_avg_sq_col": t["exp_avg_sq_col"][e].clone(), "RMS": t["RMS"]}
                parts = [cut(t, e, rows) for e in range(len(s["exp_avg"])) for t, rows in ((s, slice(0, F)), (down, slice(None)), (s, slice(F, None)))]
            for p in parts:
                states[n] = p
                n += 1
        groups.append({**g, "params": list(range(first, n))})
    torch.save({"state": states, "param_groups": groups}, f"{D}/moe-1/checkpoint-2/optimizer.pt")
    os.remove(f"{D}/moe-1/checkpoint-2/MANIFEST.json")      # it told of ours


(experts if "experts" in sys.argv[2:] else states)()
