#!/usr/bin/env python3
"""Distributed checkpoints of rarer shapes, on CPU with gloo: fsdp/2.15-more/*.

Ran with: torch 2.15.0.

    python make_dcp.py OUT

mesh2d       four ranks, a 2x2 mesh: boxes cut on both axes, strided shards, short and empty ranks
threads      two files a rank
alone        two ranks that saved without collectives: __R.metadata, no .metadata
st           safetensors inside, with values in front of the image
expected.safetensors in each: the whole tensors.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def whole():
    g = torch.Generator().manual_seed(7)
    return {"a": torch.randn(7, 6, generator=g), "b": torch.randn(3, generator=g).bfloat16(),
            "c": torch.randn(4, 5, 3, generator=g), "d": torch.arange(9),
            "e": torch.randn(5, generator=g).to(torch.float8_e4m3fn), "zero": torch.empty(0, 3),
            "one": torch.tensor(2.5)}


def run(rank, world, what):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    full = whole()
    sd = dict(full)
    if what == "mesh2d":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        place = {"a": [Shard(0), Shard(1)], "b": [Shard(0), Replicate()],
                 "c": [Replicate(), Shard(1)], "d": [Shard(0), Shard(0)]}
    else:
        mesh = init_device_mesh("cpu", (world,))
        place = {"a": [Shard(0)], "b": [Shard(0)], "c": [Shard(2)], "d": [Shard(0)]}
    for k, p in place.items():
        sd[k] = distribute_tensor(full[k], mesh, p)
    if what != "st":
        sd = {"model": sd, "step": 11, "notes": {"text": "x", "lr": 1e-3}}
    else:
        del sd["zero"], sd["e"]
        sd["note"] = "a value in front"
    if what == "threads":
        dcp.save(sd, storage_writer=FileSystemWriter(what, thread_count=2))
    elif what == "alone":
        dcp.save(sd, checkpoint_id=what, use_collectives=False)
    elif what == "st":
        dcp.save(sd, storage_writer=FileSystemWriter(
            what, serialization_format=SerializationFormat.SAFETENSORS))
    else:
        dcp.save(sd, checkpoint_id=what)
    dist.barrier()
    if rank == 0:
        tensors = {k: v for k, v in full.items() if k in (sd.get("model") or sd)}
        save_file(tensors, f"{what}/expected.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    for what, world in ("mesh2d", 4), ("threads", 2), ("alone", 2), ("st", 2):
        mp.spawn(run, (world, what), nprocs=world)
