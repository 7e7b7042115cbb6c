"""tests/golden/data/{flat,parquet}, squad-v2.json, shuffles.json: files that pandas, pyarrow and datasets wrote, with
the rows they read from them.  Usage: make_data_golden.py FIXTURES, a folder that was made with
pyarrow 26.0, datasets 5.2, torch 2.15, transformers 5.17 (parquet/index.json names the rows that belong to each file).

Rows are spelt as the record readers spell them: NaN and Infinity are strings of that name, a
number beyond int64 a string of its digits."""
import glob
import json
import os
import shutil
import sys

import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

src, dst = sys.argv[1], os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def spell(v, key=None):
    if isinstance(v, dict):
        return {k: spell(x, k) for k, x in v.items()}
    if isinstance(v, list):
        return [spell(x) for x in v]
    if isinstance(v, int) and v > 2**63 - 1:
        return str(v)
    return WORDS.get(v, v) if key == "f64" else v


for name in ("flat", "parquet"):
    os.makedirs(os.path.join(dst, name), exist_ok=True)
    for path in glob.glob(os.path.join(src, name, "*")):
        out = os.path.join(dst, name, os.path.basename(path))
        if name == "parquet" and path.endswith(".jsonl"):
            with open(out, "w", encoding="utf-8") as f:
                for line in open(path, encoding="utf-8"):
                    print(json.dumps(spell(json.loads(line)), ensure_ascii=False), file=f)
        else:
            shutil.copyfile(path, out)
nulls = json.load(open(os.path.join(src, "flat/nulls.expect.json")))["datasets_reads_it_as"]
with open(os.path.join(dst, "flat/nulls.jsonl"), "w") as f:
    for row in nulls:
        print(json.dumps(row), file=f)
os.remove(os.path.join(dst, "flat/nulls.expect.json"))
# What pandas makes of empty cells.
with open(os.path.join(dst, "flat/rows-csv.jsonl"), "w", encoding="utf-8") as f:
    for line in open(os.path.join(src, "flat/rows.jsonl"), encoding="utf-8"):
        print(json.dumps({k: None if v == "" else v for k, v in json.loads(line).items()},
                         ensure_ascii=False), file=f)
shutil.copyfile(os.path.join(src, "squad-v2.json"), os.path.join(dst, "squad-v2.json"))


def fnv(order):
    h = 0xcbf29ce484222325
    for v in order:
        for b in v.to_bytes(4, "little"):
            h = ((h ^ b) * 0x100000001b3) & (2**64 - 1)
    return "%016x" % h


def told(order):
    n = len(order)
    return {"n": n, "all": order} if n <= 20 else {
        "n": n, "first": order[:20], "last": order[-20:], "fnv1a64_u32le": fnv(order)}


# Orders: those that data is put in here, and transformers' groups by length.
orders = json.load(open(os.path.join(src, "shuffles.json")))
for key in ("python", "torch_other"):
    del orders[key]
orders["numpy"] = {k: {x: v[x] for x in ("raw_u64", "permutation_17")}
                   for k, v in orders["numpy"].items() if k.startswith("pcg64")}
orders["length_grouped"] = [
    {"n": n, "batch": batch, "seed": seed,
     "order": told(get_length_grouped_indices([i * 7919 % 97 + 1 for i in range(n)], batch,
                                              generator=torch.Generator().manual_seed(seed)))}
    for n in (1, 10, 101, 5000) for batch in (1, 4, 24) for seed in (0, 42)]
json.dump(orders, open(os.path.join(dst, "../shuffles.json"), "w"))
