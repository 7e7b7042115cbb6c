#!/usr/bin/env python3
"""Training steps and generation in PyTorch on a GPU, the peer of bench_gpu.c: same models, sizes, AdamW.

usage: peer_torch.py MODEL [OPTION...]      options as bench_gpu's, and
  --eager          no torch.compile
  --all-bf16       weights, gradients and moments in bf16, where f32 ones do not fit
  --experts NAME   transformers' way to compute experts (eager, batched_mm, grouped_mm)

transformers' model in bf16 autocast over f32 weights (f32 masters and moments, as bench_gpu has),
LoRA of rank 32 over a frozen bf16 base (PEFT, factors and their moments in f32), beside the linear
layers that bench_gpu changes: of a mixture of experts attention's q, k, v and o alone; sdpa attention where the family has it; fused AdamW.  --packed
pads what bench_gpu packs: the same documents, as many as fill a batch of rows of `length` tokens.
Warms up as bench_gpu does.
Prints one line of name=value, as bench_gpu's; tokens that are padding do not count.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import threading
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

parse = argparse.ArgumentParser()
parse.add_argument("model")
for name, value in (("batch", 8), ("length", 512), ("target", 0), ("prompt", 0), ("accumulate", 1), ("steps", 50)):
    parse.add_argument("--" + name, type=int, default=value)
parse.add_argument("--recompute", choices=("none", "norms", "full"), default="none")
parse.add_argument("--mixed", type=int, default=0)
for name in ("lora", "packed", "fp16", "decode", "eager", "all-bf16", "profile"):
    parse.add_argument("--" + name, action="store_true")
parse.add_argument("--seconds", type=float, default=60)
parse.add_argument("--memory", type=float, default=0)
parse.add_argument("--moments")
parse.add_argument("--paged", action="store_true")
parse.add_argument("--experts")
parse.add_argument("--device", default="cuda")
o = parse.parse_args()
WARM, STEADY, STEADY_EXPERTS, WARM_MOST, AT_LEAST = 5, 3, 8, 40, 10
gpu = o.device == "cuda"


class Watch:
    """Clock, power and what holds the clock back, as gpu_watch.c samples them."""
    REASONS = {0x04: "power-cap", 0x08: "hw-slowdown", 0x20: "heat", 0x40: "hw-heat", 0x80: "power-brake"}

    def __init__(self):
        self.seen, self.stop, self.thread = [], False, threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            nv = ctypes.CDLL("libnvidia-ml.so.1")
            chip = ctypes.c_void_p()
            if nv.nvmlInit_v2() or nv.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(chip)):
                return
            mhz, watt, why = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
            memory = (ctypes.c_ulonglong * 3)()
            while not self.stop:
                nv.nvmlDeviceGetClockInfo(chip, 1, ctypes.byref(mhz))
                nv.nvmlDeviceGetPowerUsage(chip, ctypes.byref(watt))
                nv.nvmlDeviceGetCurrentClocksThrottleReasons(chip, ctypes.byref(why))
                nv.nvmlDeviceGetMemoryInfo(chip, memory)
                self.seen.append((mhz.value, watt.value / 1e3, why.value, memory[2] / 2**30))
                time.sleep(0.05)
        except (OSError, AttributeError):
            pass

    def text(self):
        self.stop = True
        self.thread.join()
        if not self.seen:
            return ""
        n = len(self.seen)
        held = {name: sum(bool(s[2] & bit) for s in self.seen) for bit, name in self.REASONS.items()}
        return (f"mhz={sum(s[0] for s in self.seen) / n:.0f} watt={sum(s[1] for s in self.seen) / n:.0f} "
                f"used_gib={max(s[3] for s in self.seen):.2f}" +
                "".join(f" held={name}:{100 * k / n:.0f}%" for name, k in held.items() if k))


def sync():
    if gpu:
        torch.cuda.synchronize()


def packed_lengths():
    """The documents of bench_gpu's packed batches, one after another."""
    lengths = (pathlib.Path(__file__).parent / "text_lengths.txt").read_text().split()
    while True:
        yield from (min(int(n), o.length) for n in lengths)


table = json.loads((pathlib.Path(__file__).parent / "gpu_models.json").read_text())[o.model]
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
config = AutoConfig.for_model(**{**table, "use_cache": bool(o.decode or o.mixed)})
make = AutoModelForSeq2SeqLM if o.target else AutoModelForCausalLM
half = torch.float16 if o.fp16 else torch.bfloat16
narrow = o.lora or o.all_bf16 or o.decode or o.mixed
with torch.device(o.device):
    more = {"experts_implementation": o.experts} if o.experts else {}
    model = make.from_config(config, dtype=half if narrow else torch.float32, **more)
work = "mixed" if o.mixed else "decode" if o.decode else "lora" if o.lora else "full"


def report(**figures):
    text = " ".join(f"{k}={v}" for k, v in figures.items())
    how = "eager" if o.eager else "compiled"
    experts = f" experts={getattr(model.config, '_experts_implementation', None)}" if "num_local_experts" in table else ""
    held = torch.cuda.max_memory_allocated() / 2**30 if gpu else 0
    print(f"model={o.model} work={work} {text} gib={held:.2f} how={how}{experts} torch={torch.__version__} {watch.text()}",
          flush=True)


def decode():
    """generate() as it comes: a static cache, whose step torch compiles."""
    global watch
    ids = torch.randint(5, config.vocab_size, (o.batch, o.length), device=o.device)
    how = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if not o.eager:
        how["cache_implementation"] = "static"
    with torch.no_grad():
        model.eval()
        for n in (8, 8):
            model.generate(ids, max_new_tokens=n, min_new_tokens=n, **how)
        sync()
        watch, times = Watch(), []
        for n in (o.steps, 2 * o.steps):
            start = time.time()
            model.generate(ids, max_new_tokens=n, min_new_tokens=n, **how)
            sync()
            times.append(time.time() - start)
    each = (times[1] - times[0]) / o.steps
    report(tok_s=round(o.batch / each, 1), ms=round(1e3 * each, 3), steps=o.steps)


def mixed():
    """generate() over the prompts of bench_gpu --mixed, sorted by length and padded on the left, o.batch at a time."""
    global watch
    draw, work = 1, []
    for _ in range(o.mixed):
        draw = (draw * 1664525 + 1013904223) % 2**32
        work.append((50 + (draw >> 8) % 1451, 20 + (draw >> 16) % 381))
    work.sort()
    how = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    with torch.no_grad():
        model.eval()
        model.generate(torch.full((o.batch, 64), 5, device=o.device), max_new_tokens=8, min_new_tokens=8, **how)
        sync()
        watch, start = Watch(), time.time()
        for i in range(0, len(work), o.batch):
            some = work[i : i + o.batch]
            width, new = max(n for n, _ in some), max(n for _, n in some)
            ids = torch.randint(5, config.vocab_size, (len(some), width), device=o.device)
            mask = torch.arange(width, device=o.device) >= torch.tensor([[width - n] for n, _ in some], device=o.device)
            model.generate(ids, attention_mask=mask.long(), max_new_tokens=new, min_new_tokens=new, **how)
        sync()
    took = time.time() - start
    report(tok_s=round(sum(n for _, n in work) / took, 1), ms=round(1e3 * took, 1), steps=len(work))


def batches():
    """Arguments of the model and how many tokens count, micro-batch after micro-batch."""
    lengths, out = packed_lengths(), []
    for _ in range(8 if o.packed else o.accumulate):
        ids = torch.randint(5, config.vocab_size, (o.batch, o.length), device=o.device)
        if o.target:
            labels = torch.randint(5, config.vocab_size, (o.batch, o.target), device=o.device)
            out.append(({"input_ids": ids, "labels": labels}, o.batch * (o.length + o.target), o.batch))
            continue
        labels, tokens, mask = ids.clone(), o.batch * o.length, None
        labels[:, : o.length * o.prompt // 100] = -100
        if o.packed:
            some = [next(lengths) for _ in range(o.batch)]
            mask = (torch.arange(o.length) < torch.tensor(some)[:, None]).to(o.device)
            labels[~mask] = -100
            tokens = sum(some)
        one = {"input_ids": ids, "labels": labels}
        if mask is not None:
            one["attention_mask"] = mask.long()
        out.append((one, tokens, o.batch))
    return out


def train():
    global model, watch
    model.train()
    if o.recompute == "full":
        model.gradient_checkpointing_enable()
    if o.lora:
        import peft
        which = ["q_proj", "k_proj", "v_proj", "o_proj"] if "num_local_experts" in table else "all-linear"
        model = peft.get_peft_model(model, peft.LoraConfig(r=32, lora_alpha=32, target_modules=which))
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trained, lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    run = model if o.eager else torch.compile(model)
    work, turn = batches(), 0

    def step():
        nonlocal turn
        tokens = docs = 0
        opt.zero_grad()
        for _ in range(o.accumulate):
            inputs, some, rows = work[turn % len(work)]
            turn += 1
            with torch.autocast(o.device, half):
                loss = run(**inputs).loss / o.accumulate
            loss.backward()
            tokens, docs = tokens + some, docs + rows
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        opt.step()
        return loss, tokens, docs

    steady, best, enough = 0, 1e30, STEADY_EXPERTS if "num_local_experts" in table else STEADY
    for _ in range(WARM_MOST):
        if turn >= max(WARM, len(work)) and steady >= enough:
            break
        start = time.time()
        step()
        sync()
        took = time.time() - start
        best = min(best, took)
        steady = steady + 1 if took <= 1.05 * best else 0
    watch, times, tokens, docs, begin = Watch(), [], 0, 0, time.time()
    while len(times) < o.steps and (len(times) < AT_LEAST or time.time() - begin < o.seconds):
        start = time.time()
        loss, some, rows = step()
        sync()
        times.append(time.time() - start)
        tokens, docs = tokens + some, docs + rows
    took = time.time() - begin
    report(tok_s=round(tokens / took), ex_s=round(docs / took, 2), ms=round(1e3 * took / len(times), 2),
           median_ms=round(1e3 * statistics.median(times), 2), steps=len(times),
           loss=round(loss.item() * o.accumulate, 4))


if (o.moments and not o.all_bf16) or o.paged or o.memory:
    sys.exit("peer_torch.py: no 8-bit or paged moments in torch")
watch = None
mixed() if o.mixed else decode() if o.decode else train()
