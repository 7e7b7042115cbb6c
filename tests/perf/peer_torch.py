#!/usr/bin/env python3
"""Training steps in PyTorch on a GPU, the peer of bench_gpu.c: same models, sizes, AdamW.

usage: peer_torch.py MODEL full|lora|recompute BATCH LENGTH STEPS [PROMPT%] [TARGET] [--eager]

transformers' model in bf16 autocast over f32 weights where they fit (full: f32 masters and moments,
as bench_gpu has), LoRA over a frozen bf16 base (PEFT); sdpa attention where the family has it; fused AdamW;
torch.compile unless --eager.  Prints one line like bench_gpu's.
"""
import json
import pathlib
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

eager = "--eager" in sys.argv
args = [a for a in sys.argv[1:] if a != "--eager"]
name, kind, docs, length, steps = args[0], args[1], int(args[2]), int(args[3]), int(args[4])
prompt = int(args[5]) if len(args) > 5 else 0
target = int(args[6]) if len(args) > 6 else 0
table = json.loads((pathlib.Path(__file__).parent / "gpu_models.json").read_text())[name]
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
config = AutoConfig.for_model(**{**table, "use_cache": False})
make = AutoModelForSeq2SeqLM if target else AutoModelForCausalLM
lora = kind == "lora"
with torch.device("cuda"):
    model = make.from_config(config, dtype=torch.bfloat16 if lora else torch.float32)
model.train()
if kind == "recompute":
    model.gradient_checkpointing_enable()
if lora:
    import peft
    model = peft.get_peft_model(model, peft.LoraConfig(r=32, lora_alpha=32, target_modules="all-linear"))
trained = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(trained, lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
run = model if eager else torch.compile(model)
ids = torch.randint(5, config.vocab_size, (docs, length), device="cuda")
if target:
    labels = torch.randint(5, config.vocab_size, (docs, target), device="cuda")
else:
    labels = ids.clone()
    labels[:, : length * prompt // 100] = -100


def step():
    opt.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = run(input_ids=ids, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    opt.step()
    return loss


for _ in range(5):
    step()
torch.cuda.synchronize()
start = time.time()
for _ in range(steps):
    loss = step()
torch.cuda.synchronize()
seconds = time.time() - start
print(f"torch {torch.__version__} {name} {kind} {docs}x{length}{' eager' if eager else ''}: "
      f"{docs * (length + target) * steps / seconds:.0f} tok/s, {docs * steps / seconds:.2f} ex/s, "
      f"{1e3 * seconds / steps:.2f} ms a step, {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
      f"loss {loss.item():.4f}", flush=True)
