#!/usr/bin/env python3
"""What bitsandbytes packs, and the values its kernels give for it.

Ran with: bitsandbytes 0.50.2 (CPU), torch 2.15.0, safetensors 0.8.0.

    python make_bnb.py                    writes bnb/ beside itself

bnb/weights.safetensors     nf4 and fp4, three dtypes, absmax plain and nested, blocks of 64 and 128, an odd number of
                            elements, bytes stored as bfloat16; LLM.int8; a norm as it is
bnb/weights.expected.safetensors    by dequantize_4bit and int8_vectorwise_dequant
bnb/NAME.pt                 state_dict of AdamW8bit, Lion8bit, AdEMAMix8bit after three steps
bnb/NAME.expected.safetensors       qmap[state] * absmax, by parameter and state
"""
import json, os, shutil
import bitsandbytes as bnb, bitsandbytes.functional as F
import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "bnb")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
torch.manual_seed(5)
sd, want = {}, {}


def four(name, shape, dtype, kind, nested, block, storage=torch.uint8):
    w = torch.randn(shape).to(dtype)
    q, s = F.quantize_4bit(w, quant_type=kind, compress_statistics=nested, blocksize=block, quant_storage=storage)
    sd[name] = q
    for k, v in s.as_dict(packed=True).items():
        sd[f"{name}.{k}"] = v.clone()
    want[name] = F.dequantize_4bit(q, s).contiguous()


four("l.0.q.weight", (16, 64), torch.bfloat16, "nf4", False, 64)
four("l.0.k.weight", (40, 64), torch.float16, "nf4", True, 64)
four("l.0.v.weight", (24, 32), torch.float32, "fp4", False, 128)
four("l.0.o.weight", (150, 128), torch.bfloat16, "fp4", True, 64)      # 300 blocks: two of nested ones
four("l.0.odd.weight", (5, 13), torch.float32, "nf4", False, 64)
four("l.0.wide.weight", (8, 64), torch.bfloat16, "nf4", False, 64, torch.bfloat16)
q, scb, _ = F.int8_vectorwise_quant(torch.randn(12, 20).half())
sd["l.0.up.weight"], sd["l.0.up.SCB"], sd["l.0.up.weight_format"] = q, scb, torch.tensor(0, dtype=torch.uint8)
want["l.0.up.weight"] = F.int8_vectorwise_dequant(q, scb)
sd["l.0.norm.weight"] = want["l.0.norm.weight"] = torch.randn(16).bfloat16()
save_file(sd, os.path.join(out, "weights.safetensors"), metadata={"format": "pt"})
save_file(want, os.path.join(out, "weights.expected.safetensors"), metadata={"format": "pt"})

for name in ("AdamW8bit", "Lion8bit", "AdEMAMix8bit"):
    ps = [torch.nn.Parameter(torch.randn(65, 64)), torch.nn.Parameter(torch.randn(33))]
    opt = getattr(bnb.optim, name)(ps, lr=1e-3)
    for _ in range(3):
        for p in ps:
            p.grad = torch.randn_like(p)
        opt.step()
    torch.save(opt.state_dict(), os.path.join(out, name + ".pt"))
    want = {}
    for i, s in opt.state_dict()["state"].items():
        s = s.get("__bnb_optimizer_quant_state__", s)
        pair = "state2" in s and s["state1"].shape == s["state2"].shape
        for w in "12":
            if "state" + w not in s:
                continue
            t = s["state" + w]
            if t.dtype == torch.uint8:
                a = s["absmax" + w]
                v = s["qmap" + w][t.long()].reshape(a.shape[:-1] + (-1,))
                t = (v * a.repeat_interleave(256, -1)[..., :v.shape[-1]]).reshape(t.shape)
            key = ("exp_avg", "exp_avg_sq")[w == "2"] if pair else "state" + w
            want[f"state.{i}.{key}"] = t.contiguous()
    save_file(want, os.path.join(out, name + ".expected.safetensors"))
for f in os.listdir(out):
    os.chmod(os.path.join(out, f), 0o644)
