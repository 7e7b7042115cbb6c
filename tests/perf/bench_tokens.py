#!/usr/bin/env python3
"""bench_tokens.py TOKENIZER.json TEXT - what tests/perf/bench_tokens.c does, by Hugging Face tokenizers, one thread (without offsets)."""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer

t = Tokenizer.from_file(sys.argv[1])
text = open(sys.argv[2], encoding="utf-8", newline="").read()
lines = text.split("\n")
if lines[-1] == "":
    lines.pop()
size = len(text.encode())
t.no_truncation()
t.no_padding()
took = 1e9
for _ in range(3):
    begin = time.process_time()
    encoded = t.encode_batch_fast(lines)
    took = min(took, time.process_time() - begin)
h = 0
for e in encoded:
    for i in e.ids:
        h = (h * 31 + i) & (2**64 - 1)
print(f"tokenizers {size / took / 1e6:.2f} MB/s, {sum(len(e.ids) for e in encoded)} ids, hash {h:x}")
