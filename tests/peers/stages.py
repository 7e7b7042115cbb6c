#!/usr/bin/env python3
"""The peers' half of stages.sh: engines of DeepSpeed load a checkpoint of ckpt-train and go on.

usage: stages.py DIR STAGE [bf16]      DIR: base, rows.jsonl, run/checkpoint-3, run/metrics.jsonl
"""
import json
import os
import socket
import subprocess
import sys

import torch

WORLD, FROM, STEPS, LR, DECAY = 2, 3, 6, 1e-3, 0.1


def go_on(d, stage, half):
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(99)                   # its own weights are others
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{d}/base"), attn_implementation="eager").float()
    plain = [n for n, _ in model.named_parameters() if n.endswith("bias") or "layernorm" in n or "ln_f" in n]
    groups = [{"params": [p for n, p in model.named_parameters() if n not in plain], "weight_decay": DECAY},
              {"params": [p for n, p in model.named_parameters() if n in plain], "weight_decay": 0.0}]
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "steps_per_print": 10**9,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {"stage": stage}, "bf16": {"enabled": half}}
    if stage == 3:
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=LR), config=config)[0]
    path, _ = engine.load_checkpoint(f"{d}/run/checkpoint-{FROM}")
    if path is None or engine.global_steps != FROM:
        raise SystemExit(f"nothing was loaded, or step {engine.global_steps}")
    rows = [json.loads(line) for line in open(f"{d}/rows.jsonl")]
    ids = torch.tensor([r["input_ids"] for r in rows])[2 * rank:2 * rank + 2]
    losses = {}
    for s in range(FROM + 1, STEPS + 1):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        loss = loss.detach().float().clone()
        torch.distributed.all_reduce(loss)
        losses[s] = loss.item() / WORLD
    if rank == 0:
        with open(f"{d}/losses.json", "w") as f:
            json.dump(losses, f)


def check(ok, what):
    print("ok" if ok else "not ok", what, flush=True)
    return 0 if ok else 1


def main(d, stage, half):
    name = f"stage {stage}" + (" in bf16" if half else "")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(WORLD):
        env = dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        log = open(f"{d}/{r}.log", "w")
        ranks.append(subprocess.Popen([sys.executable, "-P", __file__, "rank", *sys.argv[1:]], env=env, stderr=log, stdout=log))
    if any([p.wait() for p in ranks]):
        return check(False, f"DeepSpeed loads {name}: " + open(f"{d}/0.log").read()[-2000:] + open(f"{d}/1.log").read()[-500:])
    theirs = {int(k): v for k, v in json.load(open(f"{d}/losses.json")).items()}
    ours = {}
    for line in open(f"{d}/run/metrics.jsonl"):
        event = json.loads(line)
        if "loss" in event and "step" in event:
            ours[event["step"]] = event["loss"]
    worst = max(abs(theirs[s] - ours[s]) / abs(ours[s]) for s in theirs)
    moved = abs(ours[FROM + 1] - ours[STEPS])
    bad = check(worst <= (5e-3 if half else 1e-5) and moved > 0.02,
                f"DeepSpeed goes on from {name} on {WORLD} ranks: largest relative difference {worst:.1e} of steps "
                f"{FROM + 1} to {STEPS}, loss {ours[FROM + 1]:.4f} to {ours[STEPS]:.4f}")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    full = torch.load(f"{d}/run/tiny_0-4-step-{FROM}.pt", weights_only=True)
    empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{d}/base"))
    empty.load_state_dict(full, strict=True)
    peer = get_fp32_state_dict_from_zero_checkpoint(f"{d}/run/checkpoint-{FROM}")
    model = load_file(f"{d}/run/checkpoint-{FROM}/model.safetensors")
    script = f"{d}/run/checkpoint-{FROM}/zero_to_fp32.py"
    alone = "import sys; sys.modules['deepspeed'] = None; import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    subprocess.run([sys.executable, "-P", "-c", alone, script, f"{d}/run/checkpoint-{FROM}", f"{d}/joined.bin"], check=True,
                   stdout=subprocess.DEVNULL)
    joined = torch.load(f"{d}/joined.bin", weights_only=True)
    bad |= check(all(torch.equal(full[k], peer[k]) for k in peer),
                 f"--state-dict-file loads strictly and has the weights of {name}")
    bad |= check(set(joined) == set(peer) and all(torch.equal(joined[k], peer[k].float()) for k in peer),
                 f"our zero_to_fp32.py gives them for {name} without DeepSpeed")
    return bad | check(set(model) <= set(peer) and all(torch.equal(peer[k], model[k]) for k in model),
                       f"zero_to_fp32 gives the weights of {name}, bit for bit")


if __name__ == "__main__":
    of_rank = sys.argv[1] == "rank"
    if of_rank:
        sys.argv.pop(1)
    sys.exit((go_on if of_rank else main)(sys.argv[1], int(sys.argv[2]), sys.argv[3:4] == ["bf16"]))
