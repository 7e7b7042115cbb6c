#!/usr/bin/env python3
"""The peers' half of resume.sh: HF Trainer goes on from a checkpoint that a resumed run of ckpt-train saved.

usage: resume.py RUN STEP HOW WORLD [KEY=VALUE ...]

RUN has checkpoint-STEP and metrics.jsonl with the losses of the steps after it.  HOW: plain, fsdp (FSDP2 with
SHARDED_STATE_DICT), ds1, ds2, ds3 (DeepSpeed of that stage).  KEY=VALUE: arguments of TrainingArguments beside
those below.  Data and model are those of tests/golden/resume.
"""
import json
import os
import socket
import subprocess
import sys

STEPS, LR, R = 8, 3e-3, "tests/golden/resume"


def on_cpu(how):
    """Checks of devices are left out: neither DeepSpeed nor FSDP2 needs a GPU for what is done here."""
    import accelerate.state as state
    from accelerate.utils import DistributedType
    if how.startswith("ds"):
        state.PartialState._prepare_backend = lambda self, cpu=False, sagemaker_dp=False, backend=None: ("gloo", DistributedType.MULTI_CPU)
    if how == "fsdp":
        was = state.AcceleratorState.__init__

        def init(self, *a, **k):
            first = "fsdp_plugin" not in self._shared_state
            was(self, *a, **k)
            if first and k.get("fsdp_plugin") is not None:
                self.distributed_type = DistributedType.FSDP
                self.fsdp_plugin = k["fsdp_plugin"]
        state.AcceleratorState.__init__ = init


def worker(run, step, how, world, *more):
    import torch
    torch.set_num_threads(1)
    on_cpu(how)
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
    world, step = int(world), int(step)
    given = {k: json.loads(v) if v[:1] in "0123456789tf[{" else v for k, v in (m.split("=", 1) for m in more)}
    if how == "fsdp":
        given.update(fsdp="full_shard auto_wrap", fsdp_config={
            "version": 2, "fsdp_version": 2, "state_dict_type": "SHARDED_STATE_DICT",
            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]})
    if how.startswith("ds"):
        given["deepspeed"] = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
                              "gradient_clipping": "auto", "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                              "zero_optimization": {"stage": int(how[2:]), "stage3_param_persistence_threshold": 0}}
    if world > 1:
        given["ddp_backend"] = "gloo"
    args = TrainingArguments(**dict(dict(
        output_dir=f"{run}/theirs", per_device_train_batch_size=2 // world, max_steps=STEPS, save_strategy="no", learning_rate=LR,
        warmup_steps=1, weight_decay=0.01, train_sampling_strategy="sequential", use_cpu=not how.startswith("ds"), disable_tqdm=True,
        report_to=[], seed=1, logging_steps=1, optim="adamw_torch"), **given))
    torch.manual_seed(99)                   # its own weights are others
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{R}/model"), attn_implementation="eager").float()
    losses = []

    class Telling(Trainer):
        def training_step(self, *a, **k):
            loss = super().training_step(*a, **k).detach().float().clone()
            if world > 1:
                torch.distributed.all_reduce(loss)
            losses.append(loss.item() / world)
            return loss / world

    rows = [json.loads(line) for line in open(f"{R}/data.jsonl")]
    rows = [{k: torch.tensor(r[k]) for k in ("input_ids", "labels")} for r in rows]
    t = Telling(model=model, args=args, train_dataset=rows)
    t.train(resume_from_checkpoint=f"{run}/checkpoint-{step}")
    if int(os.environ.get("RANK", 0)) == 0:
        with open(f"{run}/theirs.json", "w") as f:
            json.dump(losses, f)


def main(run, step, how, world, *more):
    name = f"HF Trainer{'' if how == 'plain' else ' with FSDP' if how == 'fsdp' else ' with ZeRO ' + how[2:]} goes on from {os.path.basename(run)}"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(int(world)):
        env = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
        if int(world) > 1:
            env.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        log = open(f"{run}/{r}.log", "w")
        ranks.append(subprocess.Popen([sys.executable, "-P", __file__, "rank", run, step, how, world, *more], env=env, stdout=log, stderr=log))
    if any([p.wait() for p in ranks]):
        print("not ok", name, open(f"{run}/0.log").read()[-3000:])
        return 1
    theirs = json.load(open(f"{run}/theirs.json"))
    ours = {}
    for line in open(f"{run}/metrics.jsonl"):
        event = json.loads(line)
        if "loss" in event and "step" in event:
            ours[event["step"]] = event["loss"]
    steps = range(int(step) + 1, STEPS + 1)
    worst = max(abs(a - ours[s]) / ours[s] for a, s in zip(theirs, steps)) if len(theirs) == len(steps) else float("inf")
    print("ok" if worst <= 1e-5 else "not ok", f"{name}: largest relative difference {worst:.1e} of steps {steps[0]} to {STEPS}", flush=True)
    if worst > 1e-5:
        print("   ", theirs, [ours.get(s) for s in steps])
    return worst > 1e-5


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1] == "rank" else sys.exit(main(*sys.argv[1:]))
