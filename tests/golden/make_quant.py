#!/usr/bin/env python3
"""Quantised weights as libraries lay them, and the values those libraries compute with.

Ran with: torch 2.15.0 (CPU), transformers 5.23.0, compressed-tensors 0.20.0, safetensors 0.8.0.

    python make_quant.py                  writes quant/ beside itself

Each quant/NAME/ is a model folder (config.json, model.safetensors) with expected.safetensors beside:

fp8         DeepSeek-V3's and Qwen3-FP8's weight_scale_inv: sizes that 128 divides and that it does not, F32 and
            BF16 and E8M0 scales, a stack of experts, NaN as a scale.  transformers' Fp8Dequantize where it takes
            the sizes, else kernel.py's weight_dequant: x.to(f32) * s, stored as BF16
model       lora/bloom-qkv's base with its projections in FP8, blocks of 16 x 16; model.expected is a folder
ct-*        compressed-tensors' own compressors: float-quantized (per tensor, channel, block), int-quantized
            (symmetric, with zero points), pack-quantized (4 and 8 bits, groups, with zero points, odd columns)
gptq*       what AutoGPTQ's qlinear_cuda.py packs: asymmetric, groups in any order (g_idx), 8 bits, gptq_v2;
            scales[g_idx] * (weight - zeros[g_idx])
awq         what AutoAWQ's WQLinear_GEMM packs; dequantize_gemm of awq/utils/packing_utils.py
"""
import json, os, shutil
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "quant")
shutil.rmtree(out, ignore_errors=True)
torch.manual_seed(7)


def write(name, sd, want, quantization, dtype="bfloat16"):
    os.makedirs(os.path.join(out, name))
    norm = torch.randn(16).bfloat16()
    sd["norm.weight"] = want["norm.weight"] = norm
    save_file({k: v.contiguous() for k, v in sd.items()}, os.path.join(out, name, "model.safetensors"))
    save_file({k: v.contiguous() for k, v in want.items()}, os.path.join(out, name + ".expected.safetensors"))
    with open(os.path.join(out, name, "config.json"), "w") as f:
        json.dump({"model_type": "x", "dtype": dtype, "quantization_config": quantization}, f, indent=1)


def fp8():
    sd, want = {}, {}

    def add(name, *shape, block=(128, 128), scale=torch.float32, peer=True):
        w = (torch.randn(*shape) * 100).to(torch.float8_e4m3fn)
        grid = [*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1])]
        s = (torch.rand(grid) * 1e-3).to(scale)
        full = s.float().repeat_interleave(block[0], -2)[..., : shape[-2], :]
        full = full.repeat_interleave(block[1], -1)[..., : shape[-1]]
        want[name] = (w.float() * full).bfloat16()
        if peer:
            theirs = Fp8Dequantize(None)._dequantize_one(w, s, torch.bfloat16)
            assert torch.equal(theirs, want[name]), name
        sd[name], sd[name + "_scale_inv"] = w, s
        return w, s

    add("a.weight", 128, 256)
    add("edge.weight", 130, 200, peer=False)
    add("bf16.weight", 256, 128, scale=torch.bfloat16)
    add("e8m0.weight", 128, 128, scale=torch.float8_e8m0fnu)
    add("experts.down_proj", 2, 128, 128)
    w, s = torch.randn(8, 8).to(torch.float8_e4m3fn), torch.tensor(0.25)
    sd["one.weight"], sd["one.weight_scale_inv"], want["one.weight"] = w, s, (w.float() * s).bfloat16()
    w, s = torch.randn(8, 8).to(torch.float8_e5m2), torch.tensor([[float("nan")]])
    sd["nan.weight"], sd["nan.weight_scale_inv"], want["nan.weight"] = w, s, torch.full((8, 8), 0x7FC0, dtype=torch.int16).view(torch.bfloat16)
    sd["one.input_scale"] = torch.tensor(0.5)
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).reshape(2, 128)
    codes = torch.where(codes.isnan(), torch.zeros(()).to(torch.float8_e4m3fn).float(), codes.float()).to(torch.float8_e4m3fn)
    sd["all.weight"], sd["all.weight_scale_inv"] = codes, torch.tensor([[0.0123]])
    want["all.weight"] = (codes.float() * torch.tensor(0.0123)).bfloat16()
    write("fp8", sd, want, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})


def compressed(name, form, layers):
    sd, want, groups = {}, {}, {}
    for i, (layer, shape, args, grid, dtype) in enumerate(layers):
        args = QuantizationArgs(**args)
        scheme = QuantizationScheme(targets=[layer], weights=args, format=form)
        groups[f"group_{i}"] = scheme.model_dump(mode="json")
        scale = (torch.rand(grid) * 0.02 + 0.001).to(dtype)
        state = {"weight": torch.randn(shape).to(dtype), "weight_scale": scale}
        if not args.symmetric:
            half = 2 ** (args.num_bits - 1)
            state["weight_zero_point"] = torch.randint(-half, half, grid, dtype=torch.int8)
        comp = BaseCompressor.get_value_from_registry(form)
        packed = comp.compress(state, scheme)
        value = comp.decompress(packed, scheme)["weight"]
        want[f"{layer}.weight"] = value.bfloat16() if dtype == torch.float32 else value     # as the config says
        sd.update({f"{layer}.{k}": v for k, v in packed.items()})
        sd[f"{layer}.input_scale"] = torch.tensor([1.0])
    write(name, sd, want, {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
                           "config_groups": groups, "ignore": ["lm_head"], "kv_cache_scheme": None})


F = dict(num_bits=8, type="float", symmetric=True)
I = dict(num_bits=8, type="int", symmetric=True)
P = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=16)


def gptq(name, bits, k, n, group, act_order, form, asym=True):
    groups, maxq = -(-k // group), 2 ** bits - 1
    g_idx = torch.arange(k) // group
    if act_order:
        g_idx = g_idx[torch.randperm(k)]
    weight = torch.randint(0, maxq + 1, (k, n))
    zeros = torch.randint(1, maxq + 1, (groups, n)) if asym else torch.full((groups, n), 2 ** (bits - 1))
    scales = (torch.rand(groups, n) * 0.02).half()
    stored = zeros - (0 if form == "gptq_v2" else 1)
    per = 32 // bits

    def pack(x, dim):                                   # the first lowest
        x = x.movedim(dim, -1).reshape(*x.movedim(dim, -1).shape[:-1], -1, per)
        words = sum(x[..., j] << (bits * j) for j in range(per))
        return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32).movedim(-1, dim)

    want = {"l.weight": (scales[g_idx] * (weight - zeros[g_idx])).t()}
    assert want["l.weight"].dtype == torch.float16
    sd = {"l.qweight": pack(weight, 0), "l.qzeros": pack(stored, 1), "l.scales": scales, "l.g_idx": g_idx.to(torch.int32)}
    write(name, sd, want, {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": not asym,
                           "checkpoint_format": form}, "float16")


def awq():
    k, n, group = 64, 48, 16
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    weight, zeros = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (k // group, n))
    scales = (torch.rand(k // group, n) * 0.02).half()

    def pack(x):                                        # as WQLinear_GEMM.from_linear
        q = torch.zeros(x.shape[0], n // 8, dtype=torch.int32)
        for col in range(n // 8):
            for i in range(8):
                q[:, col] |= x[:, col * 8 + order[i]].to(torch.int32) << (i * 4)
        return q

    want = (weight - zeros.repeat_interleave(group, 0)) * scales.repeat_interleave(group, 0)
    sd = {"l.qweight": pack(weight), "l.qzeros": pack(zeros), "l.scales": scales}
    write("awq", sd, {"l.weight": want.t()}, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
                                              "zero_point": True}, "float16")


def model():
    """lora/bloom-qkv's base with its projections in FP8, and what its values are."""
    base = os.path.join(here, "lora", "bloom-qkv", "base")
    sd = load_file(os.path.join(base, "model.safetensors"))
    packed, values = {}, {}
    for k, v in sd.items():
        if v.dim() != 2 or "embed" in k:
            packed[k] = values[k] = v.bfloat16()
            continue
        n = (-(-v.shape[0] // 16), -(-v.shape[1] // 16))
        full = torch.zeros(n[0] * 16, n[1] * 16)
        full[: v.shape[0], : v.shape[1]] = v.float()
        s = full.reshape(n[0], 16, n[1], 16).abs().amax((1, 3)) / 448
        q = (full.reshape(n[0], 16, n[1], 16) / s[:, None, :, None]).to(torch.float8_e4m3fn)
        values[k] = (q.float() * s[:, None, :, None]).reshape(full.shape)[: v.shape[0], : v.shape[1]].bfloat16().contiguous()
        packed[k] = q.reshape(full.shape)[: v.shape[0], : v.shape[1]].contiguous()
        packed[k + "_scale_inv"] = s
    config = json.load(open(os.path.join(base, "config.json")))
    config.pop("torch_dtype", None)
    config["dtype"] = "bfloat16"
    for name, tensors, q in ("model", packed, True), ("model.expected", values, False):
        to = os.path.join(out, name)
        os.makedirs(to)
        save_file(tensors, os.path.join(to, "model.safetensors"), metadata={"format": "pt"})
        if q:
            config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
        else:
            config.pop("quantization_config")
        json.dump(config, open(os.path.join(to, "config.json"), "w"), indent=1)


fp8()
model()
compressed("ct-float", "float-quantized", [
    ("one", (24, 40), dict(F, strategy="tensor"), (1,), torch.bfloat16),
    ("channel", (24, 40), dict(F, strategy="channel"), (24, 1), torch.float32),
    ("half", (24, 40), dict(F, strategy="channel"), (24, 1), torch.float16),
    ("block", (24, 40), dict(F, strategy="block", block_structure=[8, 16]), (3, 3), torch.bfloat16)])
compressed("ct-int8", "int-quantized", [
    ("sym", (24, 40), dict(I, strategy="channel"), (24, 1), torch.bfloat16),
    ("asym", (24, 40), dict(I, strategy="channel", symmetric=False), (24, 1), torch.bfloat16),
    ("group", (24, 48), dict(I, strategy="group", group_size=16), (24, 3), torch.float16)])
compressed("ct-pack", "pack-quantized", [
    ("sym", (24, 48), P, (24, 3), torch.bfloat16),
    ("asym", (20, 48), dict(P, symmetric=False), (20, 3), torch.float16),
    ("channel", (24, 41), dict(P, strategy="channel", group_size=None), (24, 1), torch.bfloat16),
    ("eight", (24, 48), dict(P, num_bits=8), (24, 3), torch.bfloat16)])
gptq("gptq", 4, 128, 64, 32, True, "gptq")
gptq("gptq-sym", 4, 128, 32, 32, False, "gptq", asym=False)
gptq("gptq-v2", 8, 64, 32, 24, False, "gptq_v2")
awq()
