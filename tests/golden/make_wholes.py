#!/usr/bin/env python3
"""Directories of training runs: accelerate's save_state, Ray Train's results, Lightning's .ckpt.

    python make_wholes.py OUT

Ran with: torch 2.15.0, accelerate 1.15.0, lightning 2.6.6, ray 2.60.0 (Python 3.11).  OUT is
written into Lightning's files: make them in /tmp/wholes.  Of ray-tune the files that tell the host
are left out.  ray-trial and ray-run are laid by hand, with folders whose names are in no order.
"""
import glob
import json
import os
import shutil
import sys
import tempfile

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


def lightning_run(out, weights):
    """A run that keeps its best two checkpoints and the last."""
    import lightning as L

    class Net(L.LightningModule):
        def __init__(self, lr=0.01, sizes=(4, 6)):
            super().__init__()
            self.save_hyperparameters()
            self.model = Tiny()
            self.model.load_state_dict(weights)

        def training_step(self, batch, _):
            loss = self.model(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
            return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1)]

    L.seed_everything(3)
    keep = L.pytorch.callbacks.ModelCheckpoint(dirpath=f"{out}/checkpoints", save_top_k=2,
                                               monitor="loss", save_last=True)
    net = Net()
    trainer = L.Trainer(accelerator="cpu", max_epochs=2, callbacks=[keep], logger=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(net, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    return {k: v.clone() for k, v in net.state_dict().items()}


def ray_steps(config):
    """Two steps; after each model and optimizer in files of their own, or a folder `checkpoint`."""
    from ray import train, tune
    torch.manual_seed(5)
    m = Tiny()
    opt = torch.optim.AdamW(m.parameters(), lr=config["lr"])
    for i in range(2):
        opt.zero_grad()
        m(torch.ones(2, 4)).square().mean().backward()
        opt.step()
        with tempfile.TemporaryDirectory() as d:
            if config["train"]:
                torch.save(m.state_dict(), f"{d}/model.pt")
                torch.save(opt.state_dict(), f"{d}/optimizer.pt")
            else:
                hf_folder(f"{d}/checkpoint", m.state_dict(), i + 1)
            room = train if config["train"] else tune
            room.report({"loss": 0.5 / (i + 1)}, checkpoint=room.Checkpoint.from_directory(d))
    save_file(m.state_dict(), f"{config['out']}/expected_steps.safetensors")


def hf_folder(out, weights, step):
    os.makedirs(out)
    save_file(weights, f"{out}/model.safetensors", metadata={"format": "pt"})
    for name, doc in (("config.json", {"model_type": "tiny"}),
                      ("trainer_state.json", {"global_step": step, "log_history": []})):
        with open(f"{out}/{name}", "w") as f:
            json.dump(doc, f)


def ray_real(out):
    """Runs of Ray Train 2 and of Tune, each with two reports."""
    import ray
    from ray import train, tune
    from ray.train.torch import TorchTrainer
    ray.init(num_cpus=2, include_dashboard=False)
    TorchTrainer(ray_steps, train_loop_config={"lr": 0.01, "train": True, "out": out},
                 scaling_config=train.ScalingConfig(num_workers=1),
                 run_config=train.RunConfig(name="ray-train", storage_path=out)).fit()
    tune.Tuner(ray_steps, param_space={"lr": 0.01, "train": False, "out": out},
               run_config=tune.RunConfig(name="ray-tune", storage_path=out)).fit()
    ray.shutdown()
    for pattern in ("*.pkl", "*-state-*", "*_state-*", "*/params.pkl", "*/events.out*",
                    "*/progress.csv"):
        for path in glob.glob(f"{out}/ray-tune/{pattern}"):
            os.remove(path)
    trial, = glob.glob(f"{out}/ray-tune/ray_steps_*")
    with open(f"{trial}/result.json") as f:
        rows = [json.loads(line) for line in f]
    with open(f"{trial}/result.json", "w") as f:
        for row in rows:
            for key in ("hostname", "node_ip", "pid"):
                del row[key]
            f.write(json.dumps(row) + "\n")


def ray_scores(config):
    from ray import train
    for i, loss in enumerate((0.5, 0.2, 0.4, 0.3)):
        with tempfile.TemporaryDirectory() as d:
            hf_folder(f"{d}/checkpoint", {"w": torch.full((2,), i + 1.0)}, i + 1)
            train.report({"eval_loss": loss}, checkpoint=train.Checkpoint.from_directory(d))


def ray_scored(out):
    """A run of Ray Train 2 that keeps the best two of four by a score: the second save and the last."""
    import ray
    from ray import train
    from ray.train.torch import TorchTrainer
    ray.init(num_cpus=2, include_dashboard=False)
    keep = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="eval_loss", checkpoint_score_order="min")
    TorchTrainer(ray_scores, scaling_config=train.ScalingConfig(num_workers=1),
                 run_config=train.RunConfig(name="ray-scored", storage_path=out, checkpoint_config=keep)).fit()
    ray.shutdown()


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
    ray_trial(f"{out}/ray-trial", weights)
    ray_run(f"{out}/ray-run", weights)
    save_file(lightning_run(f"{out}/lightning", weights), f"{out}/expected_ckpt.safetensors")
    ray_real(os.path.abspath(out))
    ray_scored(os.path.abspath(out))


if __name__ == "__main__":
    main(sys.argv[1])
