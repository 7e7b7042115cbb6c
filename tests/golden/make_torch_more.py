#!/usr/bin/env python3
"""Files that torch.save writes, and what torch.load gives of them.

Ran with: torch 2.15.0, numpy 2.4.6 (Python 3.11).

    python make_torch_more.py tests/golden/torch

NAME.pt has its tensors in NAME.expected.safetensors, named by their path joined with ".".
"""
import sys

import torch
from safetensors.torch import save_file


def save(name, value, expected, **how):
    torch.save(value, f"{out}/{name}.pt", **how)
    save_file({k: v.detach().contiguous().clone() for k, v in expected.items()},
              f"{out}/{name}.expected.safetensors")


def no_crc():
    """An archive whose checksums are all 0, as torch.serialization.set_crc32_options allows."""
    torch.serialization.set_crc32_options(False)
    d = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
    save("no_crc", d, d)
    torch.serialization.set_crc32_options(True)


out = sys.argv[1]
for make in (no_crc,):
    make()
