#!/usr/bin/env python3
"""Does DeepSpeed go on from a run that ckpt-merge cut for another stage and world?

usage: reshard.py DIR      (ckpt-merge on PATH; DS_ACCELERATOR=cpu)

Real engines train a small model on two ranks (tied, frozen, buffers, two optimizer groups) and
save; ckpt-merge cuts each run anew; real engines of the new stage and world load that, must hold
every weight and moment bit for bit, and take the same next step.
"""
import json
import os
import socket
import subprocess
import sys

import torch

ROWS, STEPS = 12, 3
# name: stage, world, options
SOURCES = {
    "plain": dict(stage=0), "plain16": dict(stage=0, dtype="bf16"),
    "zero1": dict(stage=1), "zero2": dict(stage=2), "zero3": dict(stage=3, zero=dict(sub_group_size=150)),
    "bf16": dict(stage=2, dtype="bf16"), "bf16opt": dict(stage=1, dtype="bf16", data_types={"grad_accum_dtype": "fp32"}),
    "robin": dict(stage=2, zero=dict(round_robin_gradients=True)),
    "fp16": dict(stage=2, dtype="fp16"), "plainfp16": dict(stage=0, dtype="fp16"), "fused": dict(stage=0, dtype="fp16", fused=True),
    "groups": dict(stage=1, groups=4),
}
# source, new stage, new world
CASES = [
    ("plain", 2, 3), ("plain", 3, 1), ("plain16", 3, 3), ("plain16", 1, 2),
    ("zero1", 3, 1), ("zero2", 1, 3), ("zero3", 2, 1), ("zero3", 3, 3), ("zero2", 3, 3), ("bf16", 3, 3), ("bf16", 2, 1),
    ("bf16opt", 1, 3), ("robin", 2, 3), ("robin", 3, 1), ("zero3", 1, 2),
    ("fp16", 3, 3), ("fp16", 1, 1), ("plainfp16", 2, 3), ("fused", 1, 3), ("fused", 3, 1), ("groups", 3, 3), ("groups", 2, 1),
]
# source, stage, world: loaded from a universal checkpoint
UNIVERSAL = [("zero1", 3, 1), ("zero3", 2, 3), ("zero3", 3, 3), ("bf16", 1, 3), ("bf16", 3, 1), ("zero2", 2, 2),
             ("plainfp16", 2, 3), ("fused", 1, 1), ("fp16", 3, 1), ("groups", 2, 3)]


class Toy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(31, 18)
        self.register_buffer("running", torch.linspace(-1, 1, 7))
        self.register_buffer("counter", torch.tensor([3, 70000, -5]))
        self.norm = torch.nn.LayerNorm(18)
        self.l1 = torch.nn.Linear(18, 23)
        self.l1.weight.requires_grad_(False)
        self.gate = torch.nn.Parameter(torch.tensor([0.5]))
        self.l2 = torch.nn.Linear(23, 18)
        self.head = torch.nn.Linear(18, 31, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.norm(self.emb(ids))
        x = x + self.l2(torch.tanh(self.l1(x)) * self.gate)
        return torch.nn.functional.cross_entropy(self.head(x)[:, :-1].float().reshape(-1, 31), ids[:, 1:].reshape(-1))


def make(source, stage, universal=False):
    import deepspeed
    o = SOURCES[source]
    torch.manual_seed(5)
    model = Toy()
    world = int(os.environ["WORLD_SIZE"])
    cfg = {"train_micro_batch_size_per_gpu": ROWS // world, "gradient_clipping": 1.0, "steps_per_print": 10**9,
           "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
           "zero_optimization": dict(stage=stage, **o.get("zero", {})),
           "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 9}}}
    if universal:
        cfg["checkpoint"] = {"load_universal": True}
    if stage == 3:
        cfg["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    if o.get("dtype") == "bf16":
        cfg["bf16"] = {"enabled": True}
    if o.get("dtype") == "fp16":            # DeepSpeed asks the processor for it; the files are the same
        from deepspeed.accelerator import get_accelerator
        get_accelerator().is_fp16_supported = lambda: True
        get_accelerator().supported_dtypes = lambda: [torch.float32, torch.bfloat16, torch.float16]
        cfg["fp16"] = {"enabled": True, "loss_scale": 0, "initial_scale_power": 8, "loss_scale_window": 2}
    if "data_types" in o and stage == 1:
        cfg["data_types"] = o["data_types"]
    trained = [p for p in model.parameters() if p.requires_grad]
    Adam = torch.optim.AdamW
    if o.get("fused") and stage == 0:       # its class is all that DeepSpeed asks for
        import deepspeed.runtime.engine as e

        class FusedAdam(Adam):
            pass
        e.FusedAdam = Adam = FusedAdam
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    if "groups" in o:                       # of options of their own
        groups = [{"params": trained[k::o["groups"]], "weight_decay": 0.01 * k, "betas": (0.9, 0.95 + 0.01 * k)} for k in range(o["groups"])]
    opt = Adam(groups, lr=0.01, betas=(0.9, 0.95))
    return deepspeed.initialize(model=model, optimizer=opt, config=cfg)[0]


def step(engine, i):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ids = torch.randint(0, 31, (ROWS, 9), generator=torch.Generator().manual_seed(i))
    loss = engine(ids[rank * ROWS // world:(rank + 1) * ROWS // world])
    engine.backward(loss)
    engine.step()
    loss = loss.detach().clone()
    torch.distributed.all_reduce(loss)
    return loss.item() / world


def live(engine, stage):
    """All weights and moments that the engine holds, whole."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    opt = engine.optimizer
    if hasattr(opt, "_hp_optimizer_states_linked") and stage < 3:
        opt._hp_optimizer_states_linked = False     # linked before torch's lazy optimizer had a state
        opt._lazy_init_hp_params_optimizer_state()
    out = {}
    for n, p in engine.module.named_parameters():
        if p.requires_grad:
            out[n] = safe_get_full_fp32_param(p).detach().float().cpu().reshape(-1).clone()
            for k in ("exp_avg", "exp_avg_sq"):
                out[f"{n}|{k}"] = safe_get_full_optimizer_state(p, k).detach().float().cpu().reshape(-1).clone()
        elif stage == 3:
            with deepspeed.zero.GatheredParameters([p]):
                out[n] = p.detach().cpu().reshape(-1).clone()
        else:
            out[n] = p.detach().cpu().reshape(-1).clone()
    for n, b in engine.module.named_buffers():
        out[n] = b.detach().cpu().reshape(-1).clone()
    return out


def scale(engine):
    """The loss scale, of classes that have one."""
    o = engine.optimizer
    for holder in (getattr(o, "loss_scaler", None), getattr(o, "loss_scale_config", None), o):
        if isinstance(getattr(holder, "cur_scale", None), (int, float)):
            return float(holder.cur_scale)
    return None


def weights(engine, stage):
    """What the model computes with."""
    import deepspeed
    out = {}
    for n, p in engine.module.named_parameters():
        if stage == 3:
            with deepspeed.zero.GatheredParameters([p]):
                out[n] = p.detach().cpu().reshape(-1).clone()
        else:
            out[n] = p.detach().cpu().reshape(-1).clone()
    return out


def save(d):
    for name, o in SOURCES.items():
        engine = make(name, o["stage"])
        for i in range(STEPS):
            step(engine, i)
        held = {} if name == "robin" or o["stage"] == 0 else live(engine, o["stage"])
        used = weights(engine, o["stage"])
        engine.save_checkpoint(f"{d}/{name}", client_state={"note": "état", "t": torch.arange(3), "pair": (1, "a")})
        scaled = scale(engine)
        loss = step(engine, STEPS)
        used_next = weights(engine, o["stage"])
        if os.environ["RANK"] == "0":
            torch.save({"live": held, "used": used, "loss": loss, "scale": scaled, "next": used_next}, f"{d}/{name}.truth")


def report(d, world, bad, what):
    if os.environ["RANK"] == "0":
        with open(f"{d}/results-{world}", "a") as f:
            print("not ok" if bad else "ok", "DeepSpeed goes on from", what, "; ".join(bad), file=f)


def load(d):
    world = int(os.environ["WORLD_SIZE"])
    for source, stage, w, universal in [(*c, False) for c in CASES] + [(*c, True) for c in UNIVERSAL]:
        if w != world:
            continue
        what = f"{source} as stage {stage} on {w}" + (" by way of a universal checkpoint" if universal else "")
        bad = []
        truth = torch.load(f"{d}/{source}.truth", weights_only=False)
        engine = make(source, stage, universal)
        path, client = engine.load_checkpoint(f"{d}/{source}-universal" if universal else f"{d}/{source}-{stage}-{w}")
        if path is None:
            bad.append("nothing was loaded")
        held = {} if source == "robin" and stage < 3 else live(engine, stage)
        used = weights(engine, stage)
        if universal:                       # DeepSpeed takes neither frozen weights nor buffers from it
            truth["live"] = {k: t for k, t in truth["live"].items() if k.split("|")[0] not in ("l1.weight", "running", "counter")}
            held = {k: t for k, t in held.items() if k in truth["live"]}
        for k, t in truth["live"].items():
            if k in held and not torch.equal(t, held[k]):
                bad.append(f"{k} differs")
        if truth["live"] and held and set(held) != set(truth["live"]):
            bad.append("names differ")
        bad += [f"{k} is used otherwise" for k, t in truth["used"].items() if not torch.equal(t, used[k])]
        if client.get("note") != "état" or client.get("pair") != (1, "a") or client["t"].tolist() != [0, 1, 2]:
            bad.append("client state differs")
        if SOURCES[source].get("dtype") == "fp16" and scale(engine) != truth["scale"]:
            bad.append(f"loss scale {scale(engine)} after {truth['scale']}")
        if engine.global_steps != STEPS:
            bad.append(f"global_steps {engine.global_steps}")
        loss = step(engine, STEPS)
        low = "dtype" in SOURCES[source]
        if abs(loss - truth["loss"]) > (1e-2 if low else 1e-5):
            bad.append(f"loss {loss} after {truth['loss']}")
        after = weights(engine, stage)
        if universal and stage == 3:        # DeepSpeed gives all groups the options of the first
            engine.destroy(), report(d, world, bad, what)
            continue
        worst = max((after[k].float() - t.float()).abs().max().item() for k, t in truth["next"].items())
        if worst > (2e-2 if low else 1e-4):
            bad.append(f"the next step differs by {worst}")
        engine.destroy(), report(d, world, bad, what)


def launch(mode, d, world):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        log = open(f"{d}/{mode}-{world}-{r}.log", "w")
        ranks.append(subprocess.Popen([sys.executable, "-P", __file__, mode, d], env=env, stderr=log, stdout=log))
    if any([p.wait() for p in ranks]):
        print(f"not ok {mode} on {world} ranks:", open(f"{d}/{mode}-{world}-0.log").read()[-1500:], flush=True)
        return 1
    results = open(f"{d}/results-{world}").read() if mode == "load" else ""
    print(results, end="", flush=True)
    return results.count("not ok")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        import deepspeed
        torch.set_num_threads(1)
        deepspeed.init_distributed("gloo")
        {"save": save, "load": load}[sys.argv[1]](sys.argv[2])
        sys.exit(0)
    d = sys.argv[1]
    failed = launch("save", d, 2)
    for source, stage, w in CASES:
        subprocess.run(["ckpt-merge", "-q", "--verify", "--stage", str(stage), "--world", str(w), "-o",
                        f"{d}/{source}-{stage}-{w}", f"{d}/{source}"], check=True, stdout=subprocess.DEVNULL)
    for source in {s for s, _, _ in UNIVERSAL}:
        subprocess.run(["ckpt-merge", "-q", "--verify", "--to", "universal", "-o", f"{d}/{source}-universal", f"{d}/{source}"],
                       check=True, stdout=subprocess.DEVNULL)
    for w in sorted({w for _, _, w in CASES}):
        failed += launch("load", d, w)
    sys.exit(1 if failed else 0)
