#!/usr/bin/env python3
"""Directories of training runs: accelerate's save_state, Ray Train's results, Lightning's .ckpt.

    python make_wholes.py OUT

accelerate 1.15 and torch 2.15 wrote the files.  The folders of Ray Train (trial with result.json,
run with checkpoint_manager_snapshot.json) are laid by hand around files that torch and safetensors
wrote, as ray 2.5x names them; the .ckpt is torch.save of the dict that Lightning dumps.
"""
import json
import os
import shutil
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from safetensors.torch import save_file


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 6)
        self.down = torch.nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Counter:
    def __init__(self):
        self.seen = 0

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, d):
        self.seen = d["seen"]


def accelerate_run(out, safe):
    """Two automatic checkpoints: out/checkpoints/checkpoint_{0,1}."""
    set_seed(3)
    project = ProjectConfiguration(project_dir=out, automatic_checkpoint_naming=True)
    loader = DataLoaderConfiguration(use_seedable_sampler=True)
    acc = Accelerator(cpu=True, project_config=project, dataloader_config=loader)
    model = Tiny()
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 1 / (n + 1))
    data = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4, shuffle=True)
    model, opt, sched, data = acc.prepare(model, opt, sched, data)
    count = Counter()
    acc.register_for_checkpointing(count)
    for _ in range(2):
        for x in data:
            opt.zero_grad()
            acc.backward(model(x).square().mean())
            opt.step()
            sched.step()
            count.seen += len(x)
        acc.save_state(safe_serialization=safe)
    return {k: v.clone() for k, v in acc.unwrap_model(model).state_dict().items()}


def ray_trial(out, weights):
    """Tune's trial: two checkpoints, the newest with an HF checkpoint in `checkpoint`."""
    with open(f"{out}/params.json", "w") as f:
        json.dump({"train_loop_config": {"lr": 0.01, "batch_size": 4}}, f)
    rows = [{"loss": 0.5 / (i + 1), "training_iteration": i + 1,
             "checkpoint_dir_name": f"checkpoint_{i:06d}"} for i in range(2)]
    with open(f"{out}/result.json", "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    with open(f"{out}/progress.csv", "w") as f:
        f.write(",".join(rows[0]) + "\n")
        f.writelines(",".join(map(str, r.values())) + "\n" for r in rows)
    for i in range(2):
        inner = f"{out}/checkpoint_{i:06d}/checkpoint"
        os.makedirs(inner)
        save_file({k: v * (i + 1) for k, v in weights.items()}, f"{inner}/model.safetensors",
                  metadata={"format": "pt"})
        with open(f"{inner}/config.json", "w") as f:
            json.dump({"model_type": "tiny"}, f)
        with open(f"{inner}/trainer_state.json", "w") as f:
            json.dump({"global_step": 2 * (i + 1), "log_history": []}, f)


def ray_run(out, weights):
    """Ray Train v2: the folders' names have no order; the snapshot names the latest."""
    names = ["checkpoint_2026-01-02_03-04-06.000001", "checkpoint_2026-01-02_03-04-05.000002"]
    for i, name in enumerate(names):
        os.makedirs(f"{out}/{name}")
        torch.save({k: v * (i + 1) for k, v in weights.items()}, f"{out}/{name}/model.pt")
    results = [{"version": 0, "checkpoint_dir_name": n, "metrics": {"loss": 0.5}} for n in names]
    with open(f"{out}/checkpoint_manager_snapshot.json", "w") as f:
        json.dump({"version": 0, "checkpoint_results": results,
                   "latest_checkpoint_result": results[1]}, f)


def lightning(path, weights):
    model = Tiny()
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 4)).sum().backward()
    opt.step()
    torch.save({
        "epoch": 1, "global_step": 4, "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"model.{k}": v for k, v in weights.items()},
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 2}}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5)}},
        "optimizer_states": [opt.state_dict()], "lr_schedulers": [{"last_epoch": 4}],
        "hparams_name": "kwargs", "hyper_parameters": {"lr": 0.01},
    }, path)


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    for name in ("accelerate", "accelerate-bin", "ray-trial", "ray-run"):
        os.makedirs(f"{out}/{name}")
    weights = accelerate_run(f"{out}/accelerate", True)
    accelerate_run(f"{out}/accelerate-bin", False)
    shutil.rmtree(f"{out}/accelerate-bin/checkpoints/checkpoint_0")
    save_file(weights, f"{out}/expected.safetensors")
    double = {k: v * 2 for k, v in weights.items()}
    save_file(double, f"{out}/expected_ray.safetensors")
    save_file({f"model.{k}": v for k, v in weights.items()}, f"{out}/expected_ckpt.safetensors")
    ray_trial(f"{out}/ray-trial", weights)
    ray_run(f"{out}/ray-run", weights)
    lightning(f"{out}/lightning.ckpt", weights)


if __name__ == "__main__":
    main(sys.argv[1])
