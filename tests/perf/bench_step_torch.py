#!/usr/bin/env python3
"""One optimizer step in PyTorch on the CPU, as jobs read from stdin: the peer of bench_step.c.

usage: bench_step_torch.py [threads] [hidden] [layers] [heads] [feed-forward of llama] [vocab]
  step llama|bloom f32|bf16|autocast BATCH LENGTH STEPS   prints the median ms of a step, the
                                                          median of its CPU time, the last loss
Same model, batch, clipping and AdamW (fused) as there; attention as the family does it best.
bf16: all of the model in bf16; autocast: f32 weights, products in bf16.
"""
import sys
import time
import torch
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM

threads, hidden, layers, heads, ff, vocab = (
    [int(x) for x in sys.argv[1:]] + [2, 768, 12, 12, 2048, 32000][len(sys.argv) - 1:])
torch.set_num_threads(threads)
torch.manual_seed(0)
made = {}


def model_of(name, dtype):
    if (name, dtype) not in made:
        if name == "bloom":
            model = BloomForCausalLM(BloomConfig(
                vocab_size=vocab, hidden_size=hidden, n_layer=layers, n_head=heads,
                hidden_dropout=0.0, attention_dropout=0.0, use_cache=False))
        else:
            model = LlamaForCausalLM(LlamaConfig(
                vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers,
                num_attention_heads=heads, intermediate_size=ff, max_position_embeddings=4096,
                tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa"))
        model = model.to(torch.bfloat16 if dtype == "bf16" else torch.float32).train()
        made[name, dtype] = model, torch.optim.AdamW(
            model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    return made[name, dtype]


def step(model, opt, ids, cast):
    opt.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=cast):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    return loss.item()


def median(x):
    return sorted(x)[len(x) // 2]


for line in sys.stdin:
    _, name, dtype, batch, length, n = line.split()
    model, opt = model_of(name, "bf16" if dtype == "bf16" else "f32")
    ids = torch.randint(5, vocab, (int(batch), int(length)))
    cast = dtype == "autocast"
    step(model, opt, ids, cast)
    wall, cpu = [], []
    for _ in range(int(n)):
        t, c = time.perf_counter(), time.process_time()
        loss = step(model, opt, ids, cast)
        wall.append(time.perf_counter() - t)
        cpu.append(time.process_time() - c)
    print(f"{median(wall) * 1e3:.2f} {median(cpu) * 1e3:.2f} {loss:.4f}", flush=True)
