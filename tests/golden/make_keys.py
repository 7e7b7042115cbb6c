#!/usr/bin/env python3
"""A dict of tensors whose keys are not texts, and the names that they have as tensors: texts as they
are, all else in Python's spelling.

Ran with: torch 2.15.0, safetensors 0.8.0 (Python 3.11).

    python make_keys.py tests/golden/torch
"""
import sys, torch
from safetensors.torch import save_file

keys = ["s", 0, 1, (1, 2), (3,), (), ("a", (4, None)), None, 2.5, 1e-7, 3.0, float("inf"), -5]
d = {k: torch.full((2,), float(i)) for i, k in enumerate(keys)}
d["in"] = {(1, 0): torch.full((2,), 99.0)}
torch.save(d, f"{sys.argv[1]}/keys.pt")
flat = {k if isinstance(k, str) else repr(k): v for k, v in d.items() if k != "in"}
flat["in.(1, 0)"] = d["in"][(1, 0)]
save_file(flat, f"{sys.argv[1]}/keys.expected.safetensors")
