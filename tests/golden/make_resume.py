#!/usr/bin/env python3
"""Checkpoints of other programs that a run goes on from, with the losses of the steps after them.

Ran with: torch 2.15.0 / transformers 5.23.0 / accelerate 1.15.0, on CPUs: python make_resume.py OUT

  config.json, data.jsonl   a Llama of two layers; 24 samples, two a step in their order
  accelerate/               Accelerator.save_state, safe_serialization off, after step 4
  dcp/                      torch.distributed.checkpoint of two FSDP2 ranks: model, optimizer, app.step
  full.pt                   the whole state dict of the first program's model at step 4
  sgd/, lion/               HF Trainer's checkpoint-4 with optim sgd (momentum 0.9) and lion_32bit (bitsandbytes
                            0.50.2); the losses of its eight steps are `sgd` and `lion`
  losses.json               of eight steps, with and without (`fresh`) the optimizer's state

AdamW (lr 3e-3, weight decay 0.01 for all), linear schedule over 8 steps with one of warmup, clipping at 1.
"""
import json, os, subprocess, sys

LR, STEPS, AT = 3e-3, 8, 4


def parts(out):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    torch.set_num_threads(1)
    config = LlamaConfig(vocab_size=41, hidden_size=16, intermediate_size=28, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False)
    rows = [json.loads(line)["input_ids"] for line in open(f"{out}/data.jsonl")]
    return config, LlamaForCausalLM(config), [torch.tensor(rows[i:i + 2]) for i in range(0, len(rows), 2)]


def optimizer_of(model):
    import torch
    from transformers import get_linear_schedule_with_warmup
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    return opt, get_linear_schedule_with_warmup(opt, 1, STEPS)


def step(model, opt, sch, batch):
    import torch
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); sch.step(); opt.zero_grad()
    return loss.item()


def whole(out):
    import torch
    from accelerate import Accelerator
    config, model, batches = parts(out)
    config.save_pretrained(out)
    opt, sch = optimizer_of(model)
    acc = Accelerator(cpu=True)
    model, opt, sch = acc.prepare(model, opt, sch)
    losses = []
    for i in range(STEPS):
        losses.append(step(model, opt, sch, batches[i]))
        if i + 1 == AT:
            acc.save_state(f"{out}/accelerate", safe_serialization=False)
            torch.save(acc.unwrap_model(model).state_dict(), f"{out}/full.pt")
    model = parts(out)[1]
    model.load_state_dict(torch.load(f"{out}/full.pt"))
    opt, sch = optimizer_of(model)
    for _ in range(AT):
        sch.step()
    fresh = [step(model, opt, sch, batches[i]) for i in range(AT, STEPS)]
    json.dump({"losses": losses, "fresh": fresh}, open(f"{out}/losses.json", "w"), indent=1)


def trainer(out, name, **how):
    """HF Trainer's run: its checkpoint of step 4 as out/name, and the losses of all steps."""
    import shutil, torch
    from transformers import Trainer, TrainingArguments
    _, model, batches = parts(out)
    rows = [t for batch in batches for t in batch]
    losses = []

    class Telling(Trainer):
        def training_step(self, *a, **k):
            losses.append(super().training_step(*a, **k))
            return losses[-1]

    args = TrainingArguments(output_dir=f"{out}/run", per_device_train_batch_size=2, max_steps=STEPS, save_steps=AT, learning_rate=LR,
                             warmup_steps=1, weight_decay=0.01, train_sampling_strategy="sequential", use_cpu=True, disable_tqdm=True,
                             report_to=[], seed=1, logging_steps=1, **how)
    Telling(model=model, args=args, train_dataset=[{"input_ids": t, "labels": t} for t in rows]).train()
    shutil.rmtree(f"{out}/{name}", ignore_errors=True)
    shutil.move(f"{out}/run/checkpoint-{AT}", f"{out}/{name}")
    shutil.rmtree(f"{out}/run")
    known = json.load(open(f"{out}/losses.json"))
    known[name] = [x.item() for x in losses]
    json.dump(known, open(f"{out}/losses.json", "w"), indent=1)


def rank(out):
    import torch, torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    config, model, batches = parts(out)
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt, sch = optimizer_of(model)
    for i in range(AT):
        step(model, opt, sch, batches[i][dist.get_rank():][:1])
    m, o = get_state_dict(model, opt)
    dcp.save({"model": m, "optimizer": o, "app": {"step": AT}}, checkpoint_id=f"{out}/dcp")
    dist.destroy_process_group()


def main(out):
    import torch
    os.makedirs(out, exist_ok=True)
    g = torch.Generator().manual_seed(5)
    with open(f"{out}/data.jsonl", "w") as f:
        for _ in range(24):
            t = torch.randint(0, 41, (8,), generator=g).tolist()
            f.write(json.dumps({"input_ids": t, "labels": t}) + "\n")
    whole(out)
    trainer(out, "sgd", optim="sgd", optim_args="momentum=0.9")
    trainer(out, "lion", optim="lion_32bit")
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, out, "rank"], check=True)


if __name__ == "__main__":
    rank(sys.argv[1]) if len(sys.argv) > 2 else main(sys.argv[1])
