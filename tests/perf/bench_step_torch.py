#!/usr/bin/env python3
"""One optimizer step of a BLOOM of the demo's size in PyTorch on the CPU: tokens per second.

usage: bench_step_torch.py [threads] [batch] [length] [hidden] [layers] [heads] [vocab]
The peer of bench_step.c: same model, batch, optimizer (AdamW, clip 1.0), same figures printed.
"""
import sys
import time
import torch
from transformers import BloomConfig, BloomForCausalLM

threads, batch, length, hidden, layers, heads, vocab = (
    [int(x) for x in sys.argv[1:]] + [2, 8, 128, 256, 4, 8, 4096][len(sys.argv) - 1:])
torch.set_num_threads(threads)
torch.manual_seed(0)
cfg = BloomConfig(vocab_size=vocab, hidden_size=hidden, n_layer=layers, n_head=heads,
                  hidden_dropout=0.0, attention_dropout=0.0, use_cache=False)
model = BloomForCausalLM(cfg)
model.train()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
g = torch.Generator().manual_seed(1)
ids = torch.randint(5, vocab, (batch, length), generator=g)


def step():
    opt.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    return loss.item()


for _ in range(3):
    step()
best, start, n = 1e9, time.perf_counter(), 0
while n < 10 or time.perf_counter() - start < 10:
    t = time.perf_counter()
    loss = step()
    best = min(best, time.perf_counter() - t)
    n += 1
mean = (time.perf_counter() - start) / n
print(f"torch {torch.__version__}: {threads} threads, {batch} x {length} tokens, hidden {hidden}, "
      f"{layers} layers: {batch * length / mean:.0f} tok/s mean, {batch * length / best:.0f} best "
      f"({mean * 1e3:.1f} ms, {best * 1e3:.1f} ms), loss {loss:.4f}")
