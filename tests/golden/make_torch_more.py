#!/usr/bin/env python3
"""Files that torch.save writes, and what torch.load gives of them.

Ran with: torch 2.15.0, numpy 2.4.6 (Python 3.11).

    python make_torch_more.py tests/golden/torch

NAME.pt has its tensors in NAME.expected.safetensors, named by their path joined with ".".
NAME/ has files of all ranks, and what they hold together in expected.safetensors.
"""
import collections
import inspect
import io
import os
import pickle
import socket
import struct
import sys
import tarfile

import numpy as np
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


class Keys(pickle.Pickler):
    def persistent_id(self, v):
        return str(self.key[id(v)]) if isinstance(v, torch.Tensor) else None


def write_tar(name, storages, tensors, obj):
    with tarfile.open(f"{out}/{name}.pt", "w:", format=tarfile.PAX_FORMAT) as f:
        for member, b in (("storages", storages), ("tensors", tensors), ("pickle", obj),
                          ("sys_info", pickle.dumps({"little_endian": True}, 2))):
            info = tarfile.TarInfo(member)
            info.size = len(b)
            f.addfile(info, io.BytesIO(b))


def tar():
    """As torch 0.1.10 wrote it, field by field; torch.load of today agrees."""
    torch.manual_seed(11)
    base = torch.randn(4, 6)
    ints = torch.arange(5)
    t = {"base": base, "turned": base.t(), "row": base[2], "ints": ints, "part": ints[1:4],
         "one": torch.tensor([2.5], dtype=torch.float64), "half": torch.randn(3).half()}
    root = collections.OrderedDict(t)
    storages, tensors = io.BytesIO(), io.BytesIO()
    store = {v.untyped_storage().data_ptr(): v for v in (base, ints, t["one"], t["half"])}
    kinds = {torch.float32: torch.FloatStorage, torch.int64: torch.LongStorage,
             torch.float64: torch.DoubleStorage, torch.float16: torch.HalfStorage}
    pickle.dump(len(store), storages, 2)
    for i, v in enumerate(store.values()):
        pickle.dump((100 + i, "cpu", kinds[v.dtype]), storages, 2)
        data = v.contiguous().flatten().numpy().tobytes()
        storages.write(struct.pack("<q", v.numel()) + data)
    pickle.dump([(200, 101, 1, 3)], storages, 2)            # a view of ints
    keys = {p: 100 + i for i, p in enumerate(store)}
    pickle.dump(len(t), tensors, 2)
    Keys.key = {}
    for i, (name, v) in enumerate(t.items()):
        Keys.key[id(v)] = 300 + i
        key = 200 if name == "part" else keys[v.untyped_storage().data_ptr()]
        offset = 0 if name == "part" else v.storage_offset()
        pickle.dump((300 + i, key, torch.Tensor), tensors, 2)
        tensors.write(struct.pack(f"<ii{v.dim()}q{v.dim()}qq", v.dim(), 0, *v.shape, *v.stride(),
                                  offset))
    obj = io.BytesIO()
    Keys(obj, 2).dump({"state_dict": root, "epoch": 3})
    write_tar("tar", storages.getvalue(), tensors.getvalue(), obj.getvalue())
    write_tar("tar_evil", storages.getvalue(), tensors.getvalue(),
              b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.")
    back = torch.load(f"{out}/tar.pt", weights_only=False)
    assert all(torch.equal(back["state_dict"][k], v) for k, v in t.items())
    save_file({k: v.contiguous().clone() for k, v in t.items()}, f"{out}/tar.expected.safetensors")


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 4))
        self.register_buffer("scale", torch.tensor([2.0, 3.0], dtype=torch.float64))
        self.sizes = [1, 2, 3]

    def forward(self, x):
        return x @ self.weight * float(self.scale[0]) + len(self.sizes)


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Inner(), Inner()])
        self.norm = torch.nn.LayerNorm(4)
        self.emb = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, i):
        x = self.emb(i)
        for b in self.blocks:
            x = self.norm(b(x))[:, :3]
        return self.head(x)


def script():
    """A module with its code, which is compressed; a tied weight, a buffer, a list."""
    torch.manual_seed(3)
    m = torch.jit.script(Outer().half())
    m.save(f"{out}/script.pt")
    save_file({k: v.detach().contiguous().clone() for k, v in m.state_dict().items()},
              f"{out}/script.expected.safetensors")


def mesh_rank(rank, port, where):
    """DTensors on a mesh of two axes, in every way to lie on it that is read."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(5)
    whole = {"hsdp": torch.randn(7, 5), "both": torch.randn(5, 6), "twice": torch.randn(9, 2),
             "few": torch.randn(3), "one": torch.randn(1, 4), "copies": torch.randn(2, 2),
             "columns": torch.randn(3, 5).bfloat16(), "none": torch.zeros(0, 3),
             "back": torch.randn(2, 3, 4)}
    how = {"hsdp": (Replicate(), Shard(0)), "both": (Shard(0), Shard(1)),
           "twice": (Shard(0), Shard(0)), "few": (Shard(0), Shard(0)), "one": (Shard(0), Shard(0)),
           "copies": (Replicate(), Replicate()), "columns": (Shard(1), Replicate()),
           "none": (Shard(0), Shard(0)), "back": (Shard(2), Shard(1))}
    d = {k: distribute_tensor(v.clone(), mesh, how[k]) for k, v in whole.items()}
    d["plain"] = torch.arange(3)
    torch.save(d, f"{where}/mesh_w4/model_world_size_4_rank_{rank}.pt")
    if rank == 0:
        partial = DTensor.from_local(torch.ones(2), mesh, (Partial(), Replicate()), run_check=False)
        torch.save({"sum": partial}, f"{where}/dtensor_partial.pt")
        alone = DTensor.from_local(torch.arange(6.0).reshape(2, 3), mesh,
                                   (Replicate(), Replicate()), run_check=False)
        torch.save({"w": alone}, f"{where}/dtensor_alone.pt")
        save_file({"w": torch.arange(6.0).reshape(2, 3)},
                  f"{where}/dtensor_alone.expected.safetensors")
        save_file(whole | {"plain": d["plain"]}, f"{where}/mesh_w4/expected.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def mesh():
    os.makedirs(f"{out}/mesh_w4", exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(mesh_rank, (port, out), nprocs=4)


def unread():
    """Tensors that are known for what they are and not read, beside two that are."""
    torch.manual_seed(1)
    w = torch.randn(3, 4)
    coo = torch.sparse_coo_tensor([[0, 2], [1, 3]], [1.5, -2.0], (3, 4))
    c = torch.complex(torch.randn(3), torch.randn(3))
    scale, zero = torch.tensor([.1, .2]), torch.tensor([0, 1])
    d = {"w": w, "coo": coo, "csr": w.to_sparse_csr(), "bsr": w.repeat(2, 1).to_sparse_bsr((2, 2)),
         "nested": torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)]),
         "meta": torch.empty(5, 6, device="meta"), "param": torch.nn.Parameter(coo.clone()),
         "conj": c.conj(), "neg": c.clone().conj().imag,
         "q": torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8),
         "qc": torch.quantize_per_channel(torch.randn(2, 4), scale, zero, 0, torch.quint8),
         "q4": torch.quantize_per_channel(torch.randn(2, 4), scale, zero.float(), 0,
                                          torch.quint4x2),
         "bits": torch.zeros(4, dtype=torch.uint8).view(torch.bits8), "b": torch.arange(3)}
    torch.save(d, f"{out}/unread.pt")
    save_file({"w": w, "b": d["b"]}, f"{out}/unread.expected.safetensors")


def conj():
    """Views that torch leaves to be computed: conjugates, negatives, both, transposed."""
    torch.manual_seed(4)
    c = torch.randn(3, 4, dtype=torch.complex64)
    d = {"plain": c, "conj": c.conj(), "t": c.conj().t(), "neg": torch._neg_view(torch.randn(5)),
         "both": torch._neg_view(torch.randn(2, 2, dtype=torch.complex64).conj()),
         "half": torch._neg_view(torch.randn(3).half())}
    torch.save(d, f"{out}/conj.pt")
    torch.save(d, f"{out}/conj_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({k: v.resolve_conj().resolve_neg().contiguous().clone() for k, v in d.items()},
               f"{out}/conj.expected.pt")


class Program(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 3)
        self.tied = torch.nn.Parameter(self.l.weight.detach().t())      # strides
        self.low = torch.nn.Parameter(torch.randn(3).bfloat16())
        self.register_buffer("steps", torch.arange(3))
        self.register_buffer("scalar", torch.tensor(2.5, dtype=torch.float64))
        self.free = torch.ones(3) * 7                                   # a constant

    def forward(self, x):
        return (self.l(x) + x @ self.tied + self.low + self.steps + self.free) * self.scalar


def export():
    """A program of torch.export, its weights without a pickle."""
    torch.manual_seed(6)
    m = Program()
    torch.export.save(torch.export.export(m, (torch.randn(2, 4),)), f"{out}/export.pt2")
    save_file({k: v.contiguous().clone() for k, v in m.state_dict().items()} | {"free": m.free},
              f"{out}/export.expected.safetensors")


def arrays():
    """numpy arrays of every dtype and order, as each protocol spells them."""
    g = np.random.default_rng(2)
    a = {"c": g.standard_normal((3, 4)), "f": np.asfortranarray(g.standard_normal((3, 4))),
         "k": np.arange(24, dtype="i2").reshape(2, 3, 4).transpose(1, 0, 2),
         "cut": np.arange(20.)[3:17:3], "big": np.arange(5, dtype=">i4") * 70000,
         "big_f": np.asfortranarray(g.standard_normal((2, 3)).astype(">f8")), "zero": np.array(2.5),
         "none": np.empty((0, 3), "f4"), "bool": np.array([True, False, True])}
    for code in ("i1", "u1", "u2", "u4", "i8", "u8", "f2", "f4", "c8", "c16"):
        a[code] = (g.standard_normal(7) * 50).astype(code[0] == "u" and "u8" or "f8").astype(code)
    d = {"w": torch.arange(4.), "arrays": a, "names": np.array(["ab", "c"]),
         "things": np.array([1, "x", None], dtype=object), "scalar": np.float32(1.5)}
    for p in (2, 3, 4, 5):
        torch.save(d, f"{out}/arrays_p{p}.pt", pickle_protocol=p)
    keep = {f"arrays.{k}": torch.from_numpy(np.ascontiguousarray(v.astype(v.dtype.newbyteorder("="))
                                                                ).reshape(v.shape))
            for k, v in a.items() if k != "c16"}
    save_file(keep | {"w": d["w"]}, f"{out}/arrays.expected.safetensors")


def more_dtypes():
    """Dtypes that safetensors' torch has no name for; raw: the bytes of each."""
    torch.manual_seed(4)
    names = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    d = {n: torch.randn(5, 3).to(getattr(torch, n)).t() for n in names}
    d["float8_e8m0fnu"] = (torch.rand(6) * 4).to(torch.float8_e8m0fnu)
    d["complex128"] = torch.complex(torch.randn(3, 2).double(), torch.randn(3, 2).double()).t()
    d["complex64_0d"] = torch.tensor(1 - 2j)
    torch.save(d, f"{out}/more_dtypes.pt")
    save_file({k: v.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
               for k, v in d.items()}, f"{out}/more_dtypes.raw.safetensors")


def module():
    """A module saved whole: its old container names classes with their source."""
    whole = torch.nn.Sequential(torch.nn.Linear(2, 2))
    kept = inspect.getsourcelines, inspect.getsourcefile
    inspect.getsourcelines = lambda what: ([f"class {what.__name__}(Module): ...\n"], 1)
    inspect.getsourcefile = lambda what: f"{what.__name__}.py"
    torch.save(whole, f"{out}/module.pt")
    torch.save(whole, f"{out}/module_legacy.pt", _use_new_zipfile_serialization=False)
    inspect.getsourcelines, inspect.getsourcefile = kept


class Window:
    """A quantised tensor with a quantizer that torch does not make."""
    def __init__(self, tensor, quantizer):
        self.args = (tensor._typed_storage(), 0, tuple(tensor.shape), tensor.stride(), quantizer,
                     False, collections.OrderedDict())

    def __reduce__(self):
        return torch._utils._rebuild_qtensor, self.args


def quantised():
    """torch's own quantised tensors, by every scheme that it saves, and their values."""
    torch.manual_seed(7)
    x, scale, zero = torch.randn(3, 5), torch.tensor([.1, .02, .3]), torch.tensor([3, 0, -4])
    whole, cut = torch.quantize_per_tensor, torch.quantize_per_channel
    d = {"i8": whole(x, .05, 3, torch.qint8), "u8": whole(x, .03, 128, torch.quint8).t(),
         "i32": whole(x * 1e4, 1.3e-5, -7, torch.qint32), "row": cut(x, scale, zero, 0, torch.qint8),
         "column": cut(x.t(), scale.double(), zero.abs(), 1, torch.quint8),
         "conv": cut(torch.randn(2, 3, 4, 2).contiguous(memory_format=torch.channels_last), scale,
                     zero, 1, torch.qint8),
         "long": cut(torch.randn(2, 5000), scale[:2], zero[:2], 0, torch.qint8),
         "floats": cut(x, scale, torch.tensor([.5, -1.25, 3.7]), 0, torch.quint8),
         "zero_d": whole(torch.tensor(1.5), .5, 1, torch.qint8),
         "empty": whole(torch.zeros(0, 4), .5, 1, torch.qint8), "plain": torch.arange(3.)}
    d["part"], d["tied"] = d["i8"][1:, 2:], d["row"]
    values = {k: v.dequantize() if v.is_quantized else v for k, v in d.items()}
    save("quantised", d, values)
    torch.save(d, f"{out}/quantised_legacy.pt", _use_new_zipfile_serialization=False)
    for name, q in {"axis": (torch.per_channel_affine, scale, zero, 2),
                    "count": (torch.per_channel_affine, scale[:2], zero, 0),
                    "scheme": (torch.per_tensor_symmetric, .1), "none": (torch.per_tensor_affine,),
                    "number": (torch.per_tensor_affine, "x", 0)}.items():
        torch.save({"q": Window(d["i8"], q)}, f"{out}/quantised_{name}.pt")


def training():
    """A training program's files: torch's tutorial's, one of two models, random states."""
    torch.manual_seed(8)
    m = torch.nn.Linear(3, 2)
    optim = torch.optim.AdamW(m.parameters())
    m(torch.ones(1, 3)).sum().backward()
    optim.step()
    weights = m.state_dict()
    save("training", {"epoch": 1, "model_state_dict": collections.defaultdict(list, weights),
                      "optimizer_state_dict": optim.state_dict(), "opt": optim.state_dict(),
                      "cuda_rng_states": [torch.zeros(16, dtype=torch.uint8)]}, weights)
    save("two_models", {"g": weights, "d": {"w": torch.ones(2)}, "g_opt": optim.state_dict()},
         {"d.w": torch.ones(2)} | {f"g.{k}": v for k, v in weights.items()})


out = sys.argv[1] if len(sys.argv) > 1 else None
if __name__ == "__main__":
    for make in (no_crc, tar, script, mesh, unread, conj, export, arrays, more_dtypes,
                 quantised, module, training):
        make()
