#!/usr/bin/env python3
"""Join the shards of this checkpoint into one torch file of float32 weights.

usage: python zero_to_fp32.py [--tag TAG] [CHECKPOINT] [OUTPUT]

CHECKPOINT  folder with the file `latest`; default: where this script lies
OUTPUT      file to write; default: pytorch_model.bin in CHECKPOINT

Needs torch alone.  Objects of other packages in the files are replaced by empty ones, and nothing
that a file names is called.  `ckpt-merge` does the same in constant memory.
"""
import argparse
import collections
import os
import pickle
import re
import types

import torch


class Inert:
    """Stands for an object whose class is not needed."""

    def __new__(cls, *args):
        self = super().__new__(cls)
        self.args = args
        return self

    def __setstate__(self, state):
        self.state = state


SAFE = {("collections", "OrderedDict"): collections.OrderedDict, ("torch", "Size"): torch.Size}
DTYPE = re.compile(r"(bfloat|float|int|uint)[0-9]+$|bool$")


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) in SAFE:
            return SAFE[module, name]
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return getattr(torch._utils, name)
        if module == "torch._tensor" and name == "_rebuild_from_type_v2":
            return lambda rebuild, kind, args, state: rebuild(*args)
        if (module == "torch" and (DTYPE.match(name) or name in ("Tensor", "device"))) or \
                (module == "torch.nn.parameter" and name == "Parameter"):
            return getattr(torch, name) if module == "torch" else torch.nn.Parameter
        if module == "torch" and name.endswith("Storage"):
            return getattr(torch, name)
        if module.split(".")[0] == "deepspeed":
            return Inert
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")


INERT = types.SimpleNamespace(__name__="inert", Unpickler=Unpickler, load=lambda f, **k: Unpickler(f, **k).load())


def load(path):
    try:
        return torch.load(path, map_location="cpu", pickle_module=INERT, weights_only=False, mmap=True)
    except (TypeError, RuntimeError, ValueError):
        return torch.load(path, map_location="cpu", pickle_module=INERT)


def numel(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def whole(pieces, shape):
    """A tensor from the ranks' pieces of it, the last of which may be padded."""
    return torch.cat([p.reshape(-1).float() for p in pieces])[:numel(shape)].reshape(tuple(shape)).clone()


def stage_3(models, optims, out):
    world = len(optims)
    for name, shape in (models[0].get("frozen_param_shapes") or {}).items():
        out[name] = whole([m["frozen_param_fragments"][name] for m in models], shape)
    for k, shapes in enumerate(models[0]["param_shapes"]):
        flats = [o["fp32_flat_groups"][k] for o in optims]
        at = 0
        for name, shape in shapes.items():
            part = -(-numel(shape) // world)
            out[name] = whole([f.narrow(0, at, part) for f in flats], shape)
            at += part


def stage_12(model, optims, out):
    trained = {name for shapes in model["param_shapes"] for name in shapes}
    shared = model.get("shared_params") or {}
    for name, t in model["module"].items():
        if name not in trained and name not in shared and torch.is_tensor(t):
            out[name] = t.float() if t.is_floating_point() else t
    for k, shapes in enumerate(model["param_shapes"]):
        flats = [o["single_partition_of_fp32_groups"][k] for o in optims]
        ends, end = [], 0
        for f in flats:
            end += f.numel()
            ends.append(end)
        at = 0
        for name, shape in shapes.items():
            n, pieces = numel(shape), []
            for f, end in zip(flats, ends):
                lo, hi = max(at, end - f.numel()), min(at + n, end)
                if lo < hi:
                    pieces.append(f.narrow(0, lo - (end - f.numel()), hi - lo))
            if sum(p.numel() for p in pieces) != n:
                raise SystemExit(f"{name}: {n} elements are wanted, the shards end before")
            out[name] = whole(pieces, shape) if pieces else torch.empty(tuple(shape))
            at += n


def join(folder, tag=None):
    """name -> float32 tensor"""
    if tag is None:
        with open(os.path.join(folder, "latest")) as f:
            tag = f.read().strip()
    files = {}
    for name in os.listdir(os.path.join(folder, tag)):
        m = re.match(r"(?:(?:bf16_)?zero_pp_rank_(\d+)_)?mp_rank_00_(model|optim)_states\.pt$", name)
        if m:
            files[m[2], int(m[1] or 0)] = os.path.join(folder, tag, name)
    ranks = max(r for _, r in files) + 1
    lacking = [str(r) for r in range(ranks) if ("optim", r) not in files]
    if lacking or ("model", 0) not in files:
        raise SystemExit(f"{folder}: files of rank {', '.join(lacking) or '0'} are absent")
    optims = [load(files["optim", r])["optimizer_state_dict"] for r in range(ranks)]
    counts = optims[0]["partition_count"]
    world = max(counts) if isinstance(counts, (list, tuple)) else counts
    if world != ranks:
        raise SystemExit(f"{folder}: {world} ranks saved it, files of {ranks} are there")
    models = [load(files["model", r]) for r in range(ranks) if ("model", r) in files]
    out = collections.OrderedDict()
    if "fp32_flat_groups" in optims[0]:
        if len(models) != world:
            raise SystemExit(f"{folder}: {world} ranks saved it, model files of {len(models)} are there")
        stage_3(models, optims, out)
    else:
        stage_12(models[0], optims, out)
    for alias, kept in (models[0].get("shared_params") or {}).items():
        out[alias] = out[kept]
    return out


def main():
    p = argparse.ArgumentParser(description="Join the shards of a checkpoint into one file of float32 weights.")
    p.add_argument("checkpoint", nargs="?", default=os.path.dirname(os.path.abspath(__file__)))
    p.add_argument("output", nargs="?")
    p.add_argument("--tag", help="folder of the shards; default: what `latest` says")
    a = p.parse_args()
    output = a.output or os.path.join(a.checkpoint, "pytorch_model.bin")
    weights = join(a.checkpoint, a.tag)
    torch.save(weights, output + ".part")
    os.replace(output + ".part", output)
    print(output)


if __name__ == "__main__":
    main()
