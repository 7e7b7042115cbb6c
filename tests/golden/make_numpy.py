#!/usr/bin/env python3
"""numpy's arrays, and the same as safetensors.

Ran with: numpy 2.4, safetensors 0.8.0.

    python make_numpy.py                  writes numpy/ beside itself

numpy/all.npz           all kinds of elements in both byte orders and both orders of axes; a scalar, an empty one, a
                        name with a folder in it; savez
numpy/packed.npz        the same by savez_compressed
numpy/all.expected.safetensors
numpy/one.npy           one array, column-major and big-endian; numpy/one.expected.safetensors
numpy/v2.npy, v3.npy    one.npy's header in version 2.0 and 3.0
numpy/object.npy        an array of objects, a pickle inside; numpy/object.npz one beside an array
numpy/void.npy          elements of two bytes that numpy does not know
"""
import os, shutil
import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "numpy")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
rng = np.random.default_rng(3)
sd, want = {}, {}
for kind in "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 c8".split():
    x = rng.integers(0, 2, (3, 5)).astype("?") if kind == "b1" else (rng.standard_normal((3, 5)) * 50).astype("f8")
    x = x + 1j * rng.standard_normal((3, 5)) if kind == "c8" else x
    for order in "<>":
        for axes in "CF":
            name = f"{kind}{'le' if order == '<' else 'be'}{axes}"
            sd[name] = np.asarray(np.abs(x) if kind[0] == "u" else x, order=axes).astype(order + kind, order="K")
            want[name] = np.ascontiguousarray(sd[name].astype("<" + kind))
sd["scalar"] = want["scalar"] = np.array(2.5, "<f4")
sd["empty"] = want["empty"] = np.zeros((0, 4), "<f4")
sd["params/dense/kernel"] = want["params/dense/kernel"] = rng.standard_normal((2, 3, 4)).astype("<f4")
sd["cube"] = np.asfortranarray(rng.standard_normal((2, 3, 4)).astype("<f4"))
want["cube"] = np.ascontiguousarray(sd["cube"])
np.savez(os.path.join(out, "all.npz"), **sd)
np.savez_compressed(os.path.join(out, "packed.npz"), **sd)
save_file(want, os.path.join(out, "all.expected.safetensors"))
one = np.asfortranarray(rng.standard_normal((7, 11)).astype(">f4"))
save_file({"one": np.ascontiguousarray(one.astype("<f4"))}, os.path.join(out, "one.expected.safetensors"))
np.save(os.path.join(out, "one.npy"), one)
for v in 2, 3:
    with open(os.path.join(out, f"v{v}.npy"), "wb") as f:
        np.lib.format.write_array(f, one, version=(v, 0))
np.save(os.path.join(out, "object.npy"), np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
np.savez(os.path.join(out, "object.npz"), a=np.zeros(3), b=np.array([None], dtype=object))
np.save(os.path.join(out, "void.npy"), np.zeros(4, "V2"))
