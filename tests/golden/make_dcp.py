#!/usr/bin/env python3
"""Distributed checkpoints of rarer shapes, on CPU with gloo: fsdp/2.15-more/*.

Ran with: torch 2.15.0.

    python make_dcp.py OUT [NAME...]

mesh2d       four ranks, a 2x2 mesh: boxes cut on both axes, strided shards, short and empty ranks
threads      two files a rank
alone        two ranks that saved without collectives: __R.metadata, no .metadata
st           safetensors inside, with values in front of the image
ranks        four ranks with torch.save: model_world_size_4_rank_R.pt of DTensors on a 2x2 mesh, cut
             twice on one axis (_StridedShard), replicated, of uneven and empty parts
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
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard


def whole():
    g = torch.Generator().manual_seed(7)
    return {"a": torch.randn(7, 6, generator=g), "b": torch.randn(3, generator=g).bfloat16(),
            "c": torch.randn(4, 5, 3, generator=g), "d": torch.arange(9),
            "e": torch.randn(5, generator=g).to(torch.float8_e4m3fn), "zero": torch.empty(0, 3),
            "one": torch.tensor(2.5)}


def save_ranks(rank, world):
    """What verl leaves: one torch.save a rank, no metadata."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    full = whole()
    place = {"a": [Shard(0), Shard(1)], "b": [Shard(0), Replicate()],
             "c": [Replicate(), Shard(1)], "d": [Shard(0), Shard(0)]}
    sd = {"one": full["one"]}
    for k, p in place.items():
        local = full[k]
        for axis, (way, at) in enumerate(zip(p, mesh.get_coordinate())):
            if way.is_shard():
                parts = local.chunk(mesh.size(axis), way.dim)
                local = parts[at] if at < len(parts) else local.narrow(way.dim, 0, 0)
        local = local.clone().contiguous()
        sd[k] = DTensor.from_local(local, mesh, p, run_check=False, shape=full[k].shape,
                                   stride=full[k].stride())
    # FSDP over tensor parallelism: the axis is cut by tp first, by fsdp then.
    i, k = mesh.get_coordinate()
    part = full["c"].chunk(2, 0)[k].chunk(2, 0)[i].clone()
    sd["s"] = DTensor.from_local(part, mesh, [_StridedShard(0, split_factor=2), Shard(0)],
                                 run_check=False, shape=full["c"].shape,
                                 stride=full["c"].stride())
    torch.save(sd, f"ranks/model_world_size_{world}_rank_{rank}.pt")
    if rank == 0:
        tensors = {k: full[k] for k in ("a", "b", "c", "d", "one")}
        save_file({**tensors, "s": full["c"].clone()},
                  "ranks/expected.safetensors")


def run(rank, world, what):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    if what == "ranks":
        save_ranks(rank, world)
        dist.destroy_process_group()
        return
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
    ways = ("mesh2d", 4), ("threads", 2), ("alone", 2), ("st", 2), ("ranks", 4)
    for what, world in [w for w in ways if w[0] in sys.argv[2:] or len(sys.argv) == 2]:
        os.makedirs(what, exist_ok=True)
        mp.spawn(run, (world, what), nprocs=world)
