"""make_schedules.py OUT - learning rates of transformers 5.23 and DeepSpeed 0.19 over 240 steps, with kwargs.

Adds to data/lr_schedules.json: each row has the schedule's name, its kwargs, warmup, total, and the rate that each
optimizer step used.  reduce_lr_on_plateau: `metric` is the evaluation after each step.  OneCycle: also beta1.
"""
import importlib.util
import json
import logging
import random
import sys
import types

import torch
from transformers import get_scheduler

LR, STEPS = 3e-4, 240


def optimizer():
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates(o, s, metric=None):
    lr, beta = [], []
    for i in range(STEPS):
        lr.append(o.param_groups[0]["lr"])
        beta.append(o.param_groups[0]["betas"][0])
        o.step()
        s.step(*([] if metric is None else [metric[i]]))
    return lr, beta


rows = []
for name, warmup, kwargs in [
    ("cosine", 30, {"num_cycles": 1.25}),
    ("cosine_with_min_lr", 30, {"min_lr": 3e-5, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", 30, {"min_lr": 3e-5}),
    ("cosine_warmup_with_min_lr", 30, {"min_lr_rate": 0.1, "warmup_lr_rate": 0.05}),
    ("cosine_warmup_with_min_lr", 0, {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 1, {"min_lr_rate": 0.1, "warmup_lr_rate": 0.5}),
    ("cosine_with_restarts", 30, {"num_cycles": 4}),
    ("polynomial", 30, {"lr_end": 1e-5, "power": 0.5}),
    ("inverse_sqrt", 30, {"timescale": 50}),
    ("inverse_sqrt", 0, {}),
    ("warmup_stable_decay", 30, {"num_decay_steps": 60}),
    ("warmup_stable_decay", 30, {"num_decay_steps": 60, "num_stable_steps": 100, "warmup_type": "cosine",
                                 "decay_type": "linear", "min_lr_ratio": 0.05}),
    ("warmup_stable_decay", 30, {"num_decay_steps": 60, "warmup_type": "1-sqrt", "decay_type": "1-sqrt",
                                 "min_lr_ratio": 0.2}),
]:
    o = optimizer()
    if name == "inverse_sqrt":
        from transformers.optimization import get_inverse_sqrt_schedule
        s = get_inverse_sqrt_schedule(o, warmup, **kwargs)
    else:
        s = get_scheduler(name, o, num_warmup_steps=warmup, num_training_steps=200, scheduler_specific_kwargs=kwargs)
    rows.append({"kind": name, "kwargs": kwargs, "warmup": warmup, "total": 200, "lr": rates(o, s)[0]})

random.seed(1)
for kwargs in [{}, {"factor": 0.5, "patience": 3, "cooldown": 2, "min_lr": 2e-5},
               {"mode": "max", "threshold_mode": "abs", "threshold": 0.05, "factor": 0.7, "patience": 1, "eps": 1e-6}]:
    metric = [3 / (1 + i / 20) + random.random() * 0.3 for i in range(STEPS)]
    o = optimizer()
    s = get_scheduler("reduce_lr_on_plateau", o, scheduler_specific_kwargs=kwargs)
    rows.append({"kind": "reduce_lr_on_plateau", "kwargs": kwargs, "warmup": 0, "total": 200, "metric": metric,
                 "lr": rates(o, s, metric)[0]})

# DeepSpeed's file alone: it needs only a logger of the package
ds = types.ModuleType("deepspeed")
utils = types.ModuleType("deepspeed.utils")
utils.logger = logging.getLogger("deepspeed")
utils.logger.setLevel(logging.ERROR)
sys.modules.update({"deepspeed": ds, "deepspeed.utils": utils})
spec = importlib.util.spec_from_file_location("lr_schedules", sys.argv[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name, kwargs in [
    ("WarmupLR", {"warmup_min_lr": 1e-5, "warmup_max_lr": LR, "warmup_num_steps": 30}),
    ("WarmupLR", {"warmup_max_lr": LR, "warmup_num_steps": 1, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 200, "warmup_max_lr": LR, "warmup_num_steps": 30, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 200, "warmup_num_steps": 30, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05}),
    ("OneCycle", {"cycle_min_lr": 1e-5, "cycle_max_lr": LR, "cycle_first_step_size": 60}),
    ("OneCycle", {"cycle_min_lr": 1e-5, "cycle_max_lr": LR, "cycle_first_step_size": 60, "cycle_second_step_size": 40,
                  "decay_step_size": 10, "decay_lr_rate": 0.5, "decay_mom_rate": 0.01, "cycle_first_stair_count": 6,
                  "cycle_second_stair_count": 4, "cycle_min_mom": 0.7, "cycle_max_mom": 0.95}),
]:
    o = optimizer()
    lr, beta = rates(o, getattr(module, name)(o, **kwargs))
    rows.append({"kind": name, "kwargs": kwargs, "warmup": 0, "total": 200, "lr": lr,
                 **({"beta1": beta} if name == "OneCycle" else {})})
with open(f"{sys.argv[1]}/lr_schedules_kwargs.json", "w") as f:
    json.dump({"base_lr": LR, "rows": rows}, f)
