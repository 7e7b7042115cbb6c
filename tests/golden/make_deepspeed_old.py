#!/usr/bin/env python3
"""DeepSpeed checkpoints as versions wrote them that no longer run here, made of newer ones.

    python make_deepspeed_old.py       (torch; rewrites the folders below deepspeed/ that it names)

What each version kept where is that of its runtime/engine.py and zero/stage_1_and_2.py (0.3:
stage2.py); tensors are those of the run it is made of, cut anew where the padding was another.
"""
import glob, os, shutil

import torch

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepspeed")


def load(path):
    return torch.load(path, weights_only=False, map_location="cpu")


def begin(source, name):
    out = os.path.join(HERE, name)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(os.path.join(HERE, source), out, ignore=shutil.ignore_patterns("*.pt"))
    tag = open(out + "/ckpt/latest").read()
    was = os.path.join(HERE, source, "ckpt", tag)
    return was, os.path.join(out, "ckpt", tag)


def recut(parts, numel, world, align):
    """Parts of ranks, padding and all, in the padding of another version."""
    flat = torch.cat(parts)[:numel]
    unit = align * world
    total = -(-numel // unit) * unit
    flat = torch.cat([flat, flat.new_zeros(total - numel)])
    return [flat[r * total // world:(r + 1) * total // world].clone() for r in range(world)]


def old_zero12(source, name, version):
    """0.5: one list of shapes in the optim file; 0.3: a plain dictionary, less padding, no '_'."""
    was, out = begin(source, name)
    model = load(was + "/mp_rank_00_model_states.pt")
    optim = [load(f) for f in sorted(glob.glob(was + "/*optim_states.pt"))]
    shapes, world = model.pop("param_shapes"), len(optim)
    for key in ("frozen_param_shapes", "frozen_param_fragments", "shared_params", "universal_checkpoint_info",
                "data_sampler", "random_ltd"):
        model.pop(key, None)
    model["csr_tensor_module_names"] = model.pop("sparse_tensor_module_names", set())
    states = [o["optimizer_state_dict"] for o in optim]
    for s in states:
        for key in ("param_slice_mappings", "param_alignment_paddings", "group_paddings", "ds_version"):
            s.pop(key, None)
        s["zero_stage"] = 2 if version < "0.5" else int(s["zero_stage"])
    if version < "0.5":
        assert len(shapes) >= 1
        for g, named in enumerate(shapes):
            numel = sum(s.numel() for s in named.values())
            new = recut([s["single_partition_of_fp32_groups"][g].detach() for s in states], numel, world, 1)
            part = new[0].numel()
            for r, s in enumerate(states):
                s["single_partition_of_fp32_groups"][g] = new[r][:max(0, min(part, numel - r * part))].clone()
            for k in ("exp_avg", "exp_avg_sq"):
                new = recut([s["base_optimizer_state"]["state"][g][k] for s in states], numel, world, 1)
                for r, s in enumerate(states):
                    s["base_optimizer_state"]["state"][g][k] = new[r]
        model.pop("ds_version", None)
    else:
        model["ds_version"] = version
    for r, o in enumerate(optim):
        kept = {"optimizer_state_dict": states[r], "param_shapes": shapes}
        if version >= "0.5":
            kept["ds_version"] = version
            kept["ds_config"] = o["ds_config"]
        line = "" if version < "0.5" else "_"
        torch.save(kept, f"{out}/zero_pp_rank_{r}_mp_rank_00{line}optim_states.pt")
    torch.save(model, out + "/mp_rank_00_model_states.pt")


def mics(source, name):
    """Only the first partition group writes: fewer files than the world has ranks."""
    was, out = begin(source, name)
    for f in sorted(glob.glob(was + "/*.pt")):
        d = load(f)
        if "dp_world_size" in d:
            d["dp_world_size"] *= 2
        d["ds_config"]["zero_optimization"]["mics_shard_size"] = len(glob.glob(was + "/*optim_states.pt"))
        for key in ("ds_version",):
            d[key] = "0.14.5"
        torch.save(d, f"{out}/{os.path.basename(f)}")


if __name__ == "__main__":
    old_zero12("0.14-s1_w2_fp16", "0.5-s1_w2_fp16", "0.5.10")
    old_zero12("0.19-s1_w2_fp16", "0.3-s2_w2_fp16", "0.3.16")
    mics("0.14-s3_w2_fp16", "0.14-s3_mics")
