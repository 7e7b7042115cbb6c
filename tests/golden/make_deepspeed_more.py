#!/usr/bin/env python3
"""DeepSpeed checkpoints of the rarer kinds, written by the real engine on CPU (gloo): experts,
pipelines, the fused FP16 optimizer, states swapped out to a file system.

Ran with: deepspeed 0.19.8 / torch 2.15.0

    DS_ACCELERATOR=cpu python make_deepspeed_more.py --out DIR [--variant NAME ...]

Each variant is one directory as make_deepspeed.py makes them: ckpt/, expected.safetensors (f32
masters of the live engine under whole-model names, and weights and buffers that are not trained),
expected_moments.safetensors, expected_module.safetensors (what the model computes with).
Expert numbers in names are global, as the expert files have them.
"""
import argparse, json, os, re, shutil, socket, subprocess, sys

HERE = os.path.abspath(__file__)
EXPERT = re.compile(r"(.*\.deepspeed_experts\.)(\d+)(\..*)")


def V(**k):
    return dict(dict(kind="moe", stage=2, world=2, dtype="bf16", ep=(2,), experts=2, pp=1, zcfg={}, cfg={}, seed=0), **k)


VARIANTS = {
    "moe_s2_w4_ep2": V(world=4, experts=4),
    "moe_s1_w2_ep1": V(stage=1, ep=(1,), experts=2, seed=1),
    "moe_s1_w4_mixed": V(stage=1, world=4, ep=(4, 2), experts=4, seed=2),
    "moe_s2_w4_data_first": V(world=4, seed=3, cfg={"use_data_before_expert_parallelism": True}),
    "moe_s0_w2_fp32": V(stage=0, dtype="fp32", experts=4, seed=4),
    "moe_s0_w2_bf16": V(stage=0, seed=5),
    "s0_w2_fused": V(kind="fused", stage=0, dtype="fp16"),
    "s0_w2_fused_bf16": V(kind="fused", stage=0, seed=6),
    "pipe_s1_w2_pp2": V(kind="pipe", stage=1, pp=2),
    "pipe_s1_w2_pp1": V(kind="pipe", stage=1, pp=1, seed=7),
    "pipe_s0_w4_pp2": V(kind="pipe", stage=0, world=4, pp=2, seed=8),
    "s3_w2_nvme": V(kind="nvme", stage=3, seed=9),
}


def toy(torch, v):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(s):
            super().__init__()
            s.norm = nn.LayerNorm(6)
            s.l1 = nn.Linear(6, 7)
            s.l2 = nn.Linear(7, 6)

        def forward(s, x):
            return x + s.l2(torch.tanh(s.l1(s.norm(x))))

    class Moe(nn.Module):
        def __init__(s):
            from deepspeed.moe.layer import MoE
            super().__init__()
            s.emb = nn.Embedding(13, 6)
            s.register_buffer("running", torch.linspace(-1, 1, 5))
            s.moe = nn.ModuleList([MoE(6, nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6)), num_experts=v["experts"], ep_size=e, k=1, min_capacity=8,
                                       use_residual=i == 1) for i, e in enumerate(v["ep"])])
            s.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
            s.head = nn.Linear(6, 13, bias=False)
            s.head.weight = s.emb.weight

        def forward(s, ids):
            x = s.emb(ids)
            for m in s.moe:
                x = x + m(x)[0]
            return nn.functional.cross_entropy(s.head(x)[:, :-1].float().reshape(-1, 13), ids[:, 1:].reshape(-1))

    class Plain(nn.Module):
        def __init__(s):
            super().__init__()
            s.emb = nn.Embedding(13, 6)
            s.block = Block()
            s.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
            s.head = nn.Linear(6, 13, bias=False)
            s.head.weight = s.emb.weight

        def forward(s, ids):
            return nn.functional.cross_entropy(s.head(s.block(s.emb(ids)))[:, :-1].float().reshape(-1, 13), ids[:, 1:].reshape(-1))

    def pipe():
        from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

        def unembed(layer, x):
            return nn.functional.linear(x, layer.weight)

        def loss(out, ids):
            return nn.functional.cross_entropy(out[:, :-1].float().reshape(-1, 13), ids[:, 1:].reshape(-1))
        layers = [TiedLayerSpec("embed", nn.Embedding, 13, 6), LayerSpec(Block), torch.tanh, LayerSpec(Block),
                  TiedLayerSpec("embed", nn.Embedding, 13, 6, forward_fn=unembed)]
        return PipelineModule(layers, num_stages=v["pp"], loss_fn=loss, partition_method="uniform")
    return {"moe": Moe, "pipe": pipe}.get(v["kind"], Plain)()


class FakeAio:
    """deepspeed.ops.aio's handle, in Python: the op itself needs libaio."""
    def __init__(s, *a, **k):
        s.n, s.pinned = 0, set()

    def new_cpu_locked_tensor(s, n, like):
        import torch
        t = torch.zeros(n, dtype=like.dtype)
        s.pinned.add(t.untyped_storage().data_ptr())
        return t

    def free_cpu_locked_tensor(s, t):
        return True

    def is_pinned(s, t):
        return t.untyped_storage().data_ptr() in s.pinned

    def get_alignment(s):
        return 64

    def _move(s, t, path, write):
        import torch
        if write:
            with open(path, "wb") as f:
                f.write(t.detach().contiguous().view(torch.uint8).numpy().tobytes())
        else:
            t.detach().view(torch.uint8).copy_(torch.frombuffer(bytearray(open(path, "rb").read()[:t.numel() * t.element_size()]), dtype=torch.uint8))
        s.n += 1

    def async_pwrite(s, t, path, *a):
        s._move(t, path, True)
        return 0

    def async_pread(s, t, path, *a):
        s._move(t, path, False)
        return 0

    sync_pwrite, sync_pread = async_pwrite, async_pread

    def wait(s):
        n, s.n = s.n, 0
        return n


def fake_aio():
    import types
    from deepspeed.ops.op_builder import AsyncIOBuilder
    from deepspeed.runtime.swap_tensor import optimizer_utils as u, partitioned_optimizer_swapper as p, utils as w
    for where in (AsyncIOBuilder, p.AsyncIOBuilder):
        where.load = lambda self, verbose=True: types.SimpleNamespace(aio_handle=FakeAio)
        where.is_compatible = lambda self, verbose=True: True
    for where in (u, w):
        where.MIN_AIO_BYTES = where.AIO_ALIGNED_BYTES = 64


def worker(name, v, out):
    import torch, deepspeed
    from safetensors.torch import save_file
    torch.set_num_threads(1)
    if v["dtype"] == "fp16":
        from deepspeed.accelerator import get_accelerator
        get_accelerator().is_fp16_supported = lambda: True
        get_accelerator().supported_dtypes = lambda: [torch.float32, torch.bfloat16, torch.float16]
    deepspeed.init_distributed("gloo")
    rank, world = int(os.environ["RANK"]), v["world"]
    if v["kind"] == "nvme":
        fake_aio()
    torch.manual_seed(1000 + v["seed"])
    cfg = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "steps_per_print": 10**9,
           "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "zero_optimization": dict(stage=v["stage"], **v["zcfg"]),
           "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 3}}}
    if v["dtype"] == "bf16":
        cfg["bf16"] = {"enabled": True}
    if v["dtype"] == "fp16":
        cfg["fp16"] = {"enabled": True, "loss_scale": 0, "initial_scale_power": 8, "loss_scale_window": 3}
    if v["kind"] == "nvme":
        cfg["zero_optimization"].update(stage3_param_persistence_threshold=0, sub_group_size=60,
                                        offload_optimizer={"device": "nvme", "nvme_path": out + "/nvme", "buffer_count": 5, "pin_memory": False})
        cfg["aio"] = {"block_size": 64, "intra_op_parallelism": 1}
    cfg.update(v["cfg"])
    model = toy(torch, v)
    names = {id(p): n for n, p in model.named_parameters()}
    from deepspeed.moe.utils import is_moe_param, split_params_into_different_moe_groups_for_optimizer as split
    if v["kind"] == "moe":                              # experts start out different on every rank
        torch.manual_seed(2000 + v["seed"] + rank)
        for n, p in model.named_parameters():
            if is_moe_param(p):
                torch.nn.init.normal_(p, std=0.3)
    train = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in train if p.dim() >= 2], "weight_decay": 0.1, "name": "decay"},
              {"params": [p for p in train if p.dim() < 2], "weight_decay": 0.0, "name": "plain"}]
    if v["kind"] == "moe":
        groups = split(groups)
    Adam = torch.optim.AdamW
    if v["kind"] == "fused":                            # its class is all that DeepSpeed asks for
        import deepspeed.runtime.engine as e

        class FusedAdam(Adam):
            pass
        e.FusedAdam = Adam = FusedAdam
    engine, opt, _, _ = deepspeed.initialize(model=model, optimizer=Adam(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8), config=cfg)
    data = torch.Generator().manual_seed(77 + (rank if v["kind"] != "pipe" else engine.grid.get_data_parallel_rank()))
    for i in range(3):
        ids = torch.randint(0, 13, (2, 9), generator=data)
        if v["kind"] == "pipe":
            engine.train_batch(iter([(ids, ids)]))
        else:
            loss = engine(ids)
            engine.backward(loss)
            with torch.no_grad():
                engine.step()
    truth = live(torch, v, engine, opt, names)
    engine.save_checkpoint(os.path.join(out, "ckpt"), client_state={"note": "état"})
    got = [None] * world
    torch.distributed.all_gather_object(got, truth)
    if rank == 0:
        whole = [{}, {}, {}]
        for t in got:
            for to, part in zip(whole, t):
                to.update(part)
        for what, t in zip(("expected", "expected_moments", "expected_module"), whole):
            save_file({k: x.contiguous() for k, x in t.items()}, f"{out}/{what}.safetensors", metadata={"format": "pt"})
        json.dump({"variant": name, "deepspeed": deepspeed.__version__, "torch": torch.__version__.split("+")[0], "engine_optimizer_class": type(opt).__name__,
                   "options": {k: v[k] for k in sorted(v)}}, open(f"{out}/expected.json", "w"), indent=1, sort_keys=True)
    torch.distributed.barrier()


def global_name(v, engine, n):
    """Expert numbers of this rank made numbers of the whole model."""
    m = EXPERT.match(n)
    if not m:
        return n
    from deepspeed.utils import groups
    layer = engine.module.get_submodule(n.split(".deepspeed_moe.")[0])
    k = groups._get_expert_parallel_rank(layer.expert_group_name) * layer.num_local_experts + int(m.group(2))
    return f"{m.group(1)}{k}{m.group(3)}"


def live(torch, v, engine, opt, names):
    """Masters, moments and model weights that this rank holds, before saving."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    if hasattr(opt, "_hp_optimizer_states_linked") and v["stage"] < 3:
        opt._hp_optimizer_states_linked = False         # linked before torch's lazy optimizer had a state
        opt._lazy_init_hp_params_optimizer_state()
    masters, moments, module = {}, {}, {}
    for n, p in engine.module.named_parameters():
        g, shape = global_name(v, engine, n), list(getattr(p, "ds_shape", p.shape))
        if v["stage"] == 3:
            with deepspeed.zero.GatheredParameters([p]):
                module[g] = p.detach().clone().reshape(shape)
        else:
            module[g] = p.detach().clone()
        if not p.requires_grad:
            masters[g] = module[g].clone()
        elif v["stage"] == 0 and not hasattr(p, "_hp_mapping"):
            m, st = p, None
            if hasattr(opt, "fp32_groups_flat"):        # fused: by place in the flat group
                for group, flat in zip(opt.fp16_groups, opt.fp32_groups_flat):
                    at = 0
                    for q in group:
                        if q is p:
                            m, st = flat.detach()[at:at + p.numel()].reshape(shape), opt.optimizer.state[flat]
                            st = {k: x[at:at + p.numel()].reshape(shape) for k, x in st.items() if torch.is_tensor(x) and x.dim()}
                        at += q.numel()
            for lo, hi in zip(getattr(opt, "fp16_groups", []), getattr(opt, "fp32_groups", [])):
                for a, b in zip(lo, hi):
                    m = b if a is p else m
            st = st if st is not None else getattr(opt, "optimizer", opt).state[m]
            masters[g] = m.detach().float().clone()
            for k in ("exp_avg", "exp_avg_sq"):
                moments[f"{g}|{k}"] = st[k].detach().float().clone()
        else:
            masters[g] = safe_get_full_fp32_param(p).detach().float().reshape(shape).clone()
            for k in ("exp_avg", "exp_avg_sq"):
                moments[f"{g}|{k}"] = safe_get_full_optimizer_state(p, k).detach().float().reshape(shape).clone()
    for n, b in engine.module.named_buffers():
        if n in engine.module.state_dict() and "exp_counts" not in n:
            masters[n] = module[n] = b.detach().clone()
    return masters, moments, module


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--out", default=".")
    a.add_argument("--variant", nargs="*")
    a.add_argument("--worker", action="store_true")
    a = a.parse_args()
    if a.worker:
        return worker(a.variant[0], VARIANTS[a.variant[0]], a.out)
    for n in a.variant or list(VARIANTS):
        v, out = VARIANTS[n], os.path.abspath(os.path.join(a.out, n))
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        ranks = []
        for r in range(v["world"]):
            env = dict(os.environ, DS_ACCELERATOR="cpu", RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(v["world"]), LOCAL_WORLD_SIZE=str(v["world"]),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
            log = open(f"{out}.r{r}.log", "w")
            ranks.append(subprocess.Popen([sys.executable, HERE, "--worker", "--variant", n, "--out", out], env=env, stdout=log, stderr=log))
        try:
            rc = [p.wait(timeout=280) for p in ranks]
        except subprocess.TimeoutExpired:
            rc = ["timeout"]
            for p in ranks:
                p.kill()
        if any(rc):
            print(n, "FAILED", rc, open(f"{out}.r0.log").read()[-1500:], flush=True)
            continue
        for f in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(f"{out}/ckpt/{f}"):
                os.remove(f"{out}/ckpt/{f}")
        shutil.rmtree(out + "/nvme", ignore_errors=True)
        print(n, "ok", flush=True)
        for r in range(v["world"]):
            os.remove(f"{out}.r{r}.log")


if __name__ == "__main__":
    main()
