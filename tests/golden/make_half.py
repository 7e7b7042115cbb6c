#!/usr/bin/env python3
"""Digests of what torch makes of many bit patterns, for test_half and test_convert.

Each line of half.txt is a name and the SHA-256 of the little-endian result, every NaN replaced
by one pattern per type (torch's own NaN bits differ with the processor).  Made with torch 2.15.0.
Run: python3 tests/golden/make_half.py > tests/golden/half.txt
"""
import hashlib
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
NAN = {torch.float16: 0x7E00, torch.bfloat16: 0x7FC0, torch.float32: 0x7FC00000}
BITS = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.uint16), 4: (torch.int32, np.uint32),
        8: (torch.int64, np.uint64)}
F8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def tell(name, tensor):
    view, bits = BITS[tensor.element_size()]
    raw = tensor.view(view).numpy().view(bits).copy()
    if tensor.dtype in NAN:
        raw[torch.isnan(tensor).numpy()] = NAN[tensor.dtype]
    print(name, hashlib.sha256(raw.tobytes()).hexdigest())


def name(dtype):
    return str(dtype).removeprefix("torch.")


# f32: every upper half with lower halves around the ties.
low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
f32 = ((np.arange(65536, dtype=np.uint32) << 16)[:, None] | low[None, :]).reshape(-1)
f32 = torch.from_numpy(f32.view(np.float32).copy())
for t in [torch.float16, torch.bfloat16] + F8:
    tell(f"float32-{name(t)}", f32.to(t))
halves = torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16))
tell("float16-float32", halves.view(torch.float16).float())
tell("bfloat16-float32", halves.view(torch.bfloat16).float())
for t in F8:
    tell(f"{name(t)}-float32", torch.arange(256, dtype=torch.uint8).view(t).float())

# f64 a hair above each of those: rounding once and rounding through f32 differ.
f64 = f32.double() * (1 + 2.0**-40)
for t in [torch.float16, torch.bfloat16, torch.float32]:
    tell(f"float64-{name(t)}", f64.to(t))

# i64: a multiplicative sequence, shifted so that all magnitudes occur.
i = np.arange(65536, dtype=np.uint64)
i64 = (i * np.uint64(0x9E3779B97F4A7C15)).view(np.int64) >> (i % np.uint64(64)).astype(np.int64)
i64 = torch.from_numpy(i64)
for t in [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
          torch.int16, torch.int32, torch.bool]:
    tell(f"int64-{name(t)}", i64.to(t))
tell("uint64-float32", i64.view(torch.uint64).float())
