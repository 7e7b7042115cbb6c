#!/usr/bin/env python3
"""GGUF files of the reference writer, and what its reader makes of their blocks.

Ran with: gguf 0.19.0, numpy, safetensors 0.8.0.

    python make_gguf.py                   writes gguf/ beside itself

gguf/types.gguf          a tensor of every type gguf-py knows the values of, and one of IQ2_XXS
gguf/types.safetensors   those values (F32 for the quantised ones)
gguf/kinds.gguf          every kind of value, long and short arrays; alignment 64; a name of 63 bytes
gguf/part-0000?-of-00002.gguf   a split model
gguf/q8_0.safetensors    values to quantise, with edge cases, and gguf/q8_0.gguf: by gguf-py
"""
import os, shutil
import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q, GGUFWriter, quants
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "gguf")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
rng = np.random.default_rng(7)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# Where the f16 scales of a block lie: any bytes would do for the rest, but scales stay finite.
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82], Q.Q3_K: [108],
          Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.TQ1_0: [52], Q.TQ2_0: [64], Q.IQ4_NL: [0], Q.IQ4_XS: [0],
          Q.MXFP4: [], Q.NVFP4: [], Q.IQ2_XXS: [0]}
w = GGUFWriter(os.path.join(out, "types.gguf"), "llama")
want = {}
for q, at in SCALES.items():
    n, size = gguf.GGML_QUANT_SIZES[q]
    blocks = rng.integers(0, 256, (2, 3 if n < 256 else 1, size), dtype=np.uint8)
    for a in at:
        blocks[..., a:a + 2] = rng.normal(0, 0.3, blocks.shape[:2] + (1,)).astype(np.float16).view(np.uint8)
    if q == Q.MXFP4:
        blocks[0, :2, 0] = [0, 1]           # the two exponents below the normal ones
        blocks[1, :, 0] = [2, 127, 130]
    if q == Q.NVFP4:
        blocks[0, 0, :4] = [0, 0x7f, 1, 0x7e]
    data = blocks.reshape(2, -1)
    w.add_tensor(q.name, data, raw_shape=data.shape, raw_dtype=q)
    if q != Q.IQ2_XXS:
        want[q.name] = quants.dequantize(data, q)
for name, t in {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "I16": np.int16,
                "I32": np.int32, "I64": np.int64}.items():
    a = (rng.normal(0, 50, (3, 2, 5))).astype(t)
    w.add_tensor(name, a)
    want[name] = a
b = rng.normal(0, 1, (2, 4)).astype(np.float32)
w.add_tensor("BF16", quants.quantize(b, Q.BF16), raw_dtype=Q.BF16)
want["BF16"] = quants.quantize(b, Q.BF16).view(np.uint16)       # its bits
finish(w)
save_file(want, os.path.join(out, "types.safetensors"))

w = GGUFWriter(os.path.join(out, "kinds.gguf"), "test")
w.data_alignment = 64
w.add_custom_alignment(64)
w.add_uint8("k.u8", 200); w.add_int8("k.i8", -100); w.add_uint16("k.u16", 60000); w.add_int16("k.i16", -30000)
w.add_uint32("k.u32", 4000000000); w.add_int32("k.i32", -2000000000); w.add_float32("k.f32", 0.1)
w.add_bool("k.yes", True); w.add_bool("k.no", False); w.add_string("k.text", "h\u00e9 \U0001f600\n")
w.add_uint64("k.u64", 9000000000); w.add_int64("k.i64", -9000000000); w.add_float64("k.f64", 0.1)
w.add_array("k.few", [1, 2, 3]); w.add_array("k.floats", [0.5, -1.5]); w.add_array("k.names", ["a", "", "b\u00e9"])
w.add_array("k.many", [f"token {i}" for i in range(500)]); w.add_array("k.numbers", list(range(1000)))
w.add_string("k.long", "x" * 70000)
w.add_tensor("n" * 63, np.arange(3, dtype=np.float32))
w.add_tensor("one", np.float32([7]))
w.add_tensor("rows", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
finish(w)

for i in range(2):
    w = GGUFWriter(os.path.join(out, f"part-{i + 1:05d}-of-00002.gguf"), "test")
    w.add_uint16("split.no", i); w.add_uint16("split.count", 2); w.add_int32("split.tensors.count", 3)
    for k in range(2 - i):
        w.add_tensor(f"t{i}{k}", np.full((2, 3), 10 * i + k, dtype=np.float32))
    finish(w)

x = rng.normal(0, 1, (20, 64)).astype(np.float32)
x[0] = 0
x[1, :32] = np.float32(1e-45) * np.arange(32)           # subnormal
x[2, :32] = np.float32(3e4) * np.arange(-16, 16)
x[3, :32] = (np.arange(32) - 15.5) / 127 * 16           # ties
x[3, 0] = 16
x[4, :32] = np.float32(2e-6) * rng.normal(0, 1, 32)     # the scale is a subnormal f16
x[5, :32] = np.float32(127) * np.sign(rng.normal(0, 1, 32))
save_file({"x": x}, os.path.join(out, "q8_0.safetensors"))
w = GGUFWriter(os.path.join(out, "q8_0.gguf"), "test")
w.add_tensor("x", quants.quantize(x, Q.Q8_0), raw_dtype=Q.Q8_0)
finish(w)
