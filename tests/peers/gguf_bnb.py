#!/usr/bin/env python3
"""gguf_bnb.py DIR - GGUF files by gguf-py, packed weights and states by bitsandbytes, and ours by theirs.

Needs ckpt-merge on the path and writes below DIR.  Exit status 1 when a peer disagrees.
"""
import json, os, subprocess, sys
import numpy as np, torch
from safetensors.torch import load_file, save_file

D = sys.argv[1]
bad = 0


def check(ok, what):
    global bad
    bad += not ok
    print("ok" if ok else "not ok", what)


def merge(*args):
    return subprocess.run(["ckpt-merge", "-q", "--verify", *args], stdout=subprocess.DEVNULL).returncode == 0


def gguf_py():
    import gguf
    from transformers import Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(0)
    m = Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=2)).bfloat16()
    m.save_pretrained(f"{D}/qwen2")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    for kind in ("bf16", "f16", "q8_0"):
        check(merge("--dtype", kind, "-o", f"{D}/qwen2.{kind}.gguf", f"{D}/qwen2"), f"gguf: {kind} is written")
        r = gguf.GGUFReader(f"{D}/qwen2.{kind}.gguf")
        have = {t.name: t for t in r.tensors}
        check(r.fields["general.architecture"].contents() == "qwen2" and r.fields["qwen2.block_count"].contents() == 2,
              f"gguf: {kind}: gguf-py reads the keys")
        same = True
        for name, w in m.state_dict().items():
            if name == "lm_head.weight" and m.config.tie_word_embeddings:
                continue
            t = have.pop(names.get_name(name, (".weight", ".bias")))
            x = gguf.quants.dequantize(t.data, t.tensor_type).reshape(w.shape)
            want = w.float()
            if w.ndim == 2:
                want = want.half().float() if kind == "f16" else want
                if kind == "q8_0":
                    want = torch.from_numpy(gguf.quants.dequantize(
                        gguf.quants.quantize(want.numpy(), gguf.GGMLQuantizationType.Q8_0),
                        gguf.GGMLQuantizationType.Q8_0))
            same &= np.array_equal(x, want.numpy())
        check(same and not have, f"gguf: {kind}: gguf-py reads every tensor, to the bit")
    check(merge("-o", f"{D}/back", f"{D}/qwen2.bf16.gguf"), "gguf: and back")
    a, b = load_file(f"{D}/qwen2/model.safetensors"), load_file(f"{D}/back/model.safetensors")
    check(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), "gguf: the model is what it was")


def weights():
    import bitsandbytes as bnb, bitsandbytes.functional as F
    torch.manual_seed(0)
    sd, want = {}, {}
    for i, (kind, dtype, nested) in enumerate((k, d, n) for k in ("nf4", "fp4") for n in (False, True)
                                              for d in (torch.float32, torch.float16, torch.bfloat16)):
        q, s = F.quantize_4bit(torch.randn(96, 256).to(dtype), quant_type=kind, compress_statistics=nested, blocksize=64)
        sd[f"l.{i}.weight"] = q
        sd |= {f"l.{i}.weight.{k}": v.clone() for k, v in s.as_dict(packed=True).items()}
        want[f"l.{i}.weight"] = F.dequantize_4bit(q, s).float()
    q, scb, _ = F.int8_vectorwise_quant(torch.randn(48, 100).half())
    sd |= {"m.weight": q, "m.SCB": scb, "m.weight_format": torch.tensor(0, dtype=torch.uint8)}
    want["m.weight"] = F.int8_vectorwise_dequant(q, scb)
    save_file(sd, f"{D}/packed.safetensors")
    check(merge("--dtype", "f32", "-o", f"{D}/plain.safetensors", f"{D}/packed.safetensors"), "bitsandbytes: weights")
    have = load_file(f"{D}/plain.safetensors")
    check(have.keys() == want.keys() and all(torch.equal(have[k], want[k]) for k in want),
          "bitsandbytes: the values its kernels give")


def states():
    import bitsandbytes as bnb
    torch.manual_seed(0)
    ps = [torch.nn.Parameter(torch.randn(80, 64)), torch.nn.Parameter(torch.randn(20))]
    opt = bnb.optim.AdamW8bit(ps, lr=1e-3)
    for _ in range(3):
        for p in ps:
            p.grad = torch.randn_like(p)
        opt.step()
    torch.save(opt.state_dict(), f"{D}/optimizer.pt")
    check(merge("--dtype", "f32", "-o", f"{D}/moments.safetensors", f"{D}/optimizer.pt"), "bitsandbytes: states")
    have = load_file(f"{D}/moments.safetensors")
    s = opt.state_dict()["state"][0]
    s = s.get("__bnb_optimizer_quant_state__", s)
    want = (s["qmap2"][s["state2"].long()].view(-1, 256) * s["absmax2"][:, None]).view(80, 64)
    check(torch.equal(have["state.0.exp_avg_sq"], want), "bitsandbytes: moments")


for test in (gguf_py, weights, states):
    try:
        test()
    except ImportError as e:
        print(f"skipped: {e}")
sys.exit(bad > 0)
