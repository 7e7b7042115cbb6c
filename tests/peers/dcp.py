#!/usr/bin/env python3
"""torch's distributed checkpoints, both ways: what it saves we read, what we write it loads.

usage: dcp.py DIR      DIR: zero3/checkpoint-4 and merged/, as check.sh leaves them; scratch too.
                       ckpt-merge is on PATH.
"""
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_state_dict,
                                                     set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

D = sys.argv[1]
bad = 0


def check(ok, what):
    global bad
    print("ok" if ok else "not ok", what, flush=True)
    bad += not ok


def merge(*args):
    subprocess.run(["ckpt-merge", "-q", *args], check=True, stdout=subprocess.DEVNULL)


def converted(path):
    """What torch's own converter makes of a directory."""
    dcp_to_torch_save(path, f"{D}/converted.pt")
    return torch.load(f"{D}/converted.pt", weights_only=True)


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    return a == b


def model_of(seed):
    torch.manual_seed(seed)
    m = torch.nn.Sequential(torch.nn.Embedding(13, 6), torch.nn.Linear(6, 9), torch.nn.LayerNorm(9))
    m.register_buffer("count", torch.tensor(5))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in m:
        fully_shard(part, mesh=mesh)
    fully_shard(m, mesh=mesh)
    decay = [p for p in m.parameters() if p.dim() > 1]
    rest = [p for p in m.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=1e-2,
                            betas=(0.8, 0.9), foreach=False)
    return m, opt


def train(m, opt, steps):
    for i in range(steps):
        opt.zero_grad()
        m(torch.arange(8) + i % 3).square().mean().backward()
        opt.step()


def rank(r, world, what):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29547", RANK=str(r),
                      WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=r, world_size=world)
    m, opt = model_of(1 if what == "save" else 2)
    train(m, opt, 3 if what == "save" else 1)
    if what == "load":
        model, optim = get_state_dict(m, opt)
        state = {"model": model, "optimizer": optim}
        dcp.load(state, checkpoint_id=f"{D}/ours")
        set_state_dict(m, opt, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optim = get_state_dict(m, opt, options=full)
    if r == 0:
        torch.save({"model": model, "optimizer": optim}, f"{D}/{what}.pt")
    if what == "save":
        model, optim = get_state_dict(m, opt)
        dcp.save({"model": model, "optimizer": optim, "step": 3}, checkpoint_id=f"{D}/theirs")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank, (2, "save"), nprocs=2)
    live = torch.load(f"{D}/save.pt", weights_only=True)
    merge("--optimizer", "keep", "-o", f"{D}/theirs.safetensors", f"{D}/theirs")
    ours = load_file(f"{D}/theirs.safetensors")
    wanted = dict(live["model"])
    for name, state in live["optimizer"]["state"].items():
        wanted.update({f"{name}|{k}": v for k, v in state.items()})
    check(same(ours, wanted), "what FSDP saves is read as the live weights and moments")

    merge("--optimizer", "keep", "--to", "dcp", "--max-shard-size", "500", "-o", f"{D}/ours",
          f"{D}/theirs")
    check(same(converted(f"{D}/ours"), converted(f"{D}/theirs")),
          "dcp_to_torch_save makes the same of ours and of theirs")
    mp.spawn(rank, (3, "load"), nprocs=3)
    check(same(torch.load(f"{D}/load.pt", weights_only=True), live),
          "FSDP on three ranks goes on from what we write")

    merge("--to", "dcp", "--optimizer", "keep", "-o", f"{D}/zero3-dcp", f"{D}/zero3/checkpoint-4")
    zero3 = converted(f"{D}/zero3-dcp")
    check(same(zero3["model"], load_file(f"{D}/merged/model.safetensors")),
          "ZeRO-3 shards become a distributed checkpoint of the same values")
    optim = zero3["optimizer"]
    check({n for g in optim["param_groups"] for n in g["params"]} == set(optim["state"]) and
          all(s.keys() == {"exp_avg", "exp_avg_sq", "step"} for s in optim["state"].values()),
          "with the state of every parameter of its groups")
    sys.exit(1 if bad else 0)
