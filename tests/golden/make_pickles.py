#!/usr/bin/env python3
"""Pickles of every protocol with what they hold, as tests/unit/formats/test_pickle.c reads them.

python3 tests/golden/make_pickles.py > tests/golden/pickle/vectors.json
Written with CPython 3.11.  "same": writing the value again gives these very bytes.
"""
import collections
import datetime
import json
import pickle


def show(v):
    """As value_to_json shows it."""
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    if isinstance(v, int):
        return v if -2**63 <= v < 2**63 else str(v)
    if isinstance(v, float):
        return "NaN" if v != v else "Infinity" if v == float("inf") else v
    if isinstance(v, (bytes, bytearray)):
        return {"$bytes": len(v), "hex": v[:32].hex()}
    if isinstance(v, (list, tuple, set, frozenset)):
        return [show(x) for x in v]
    return {k if isinstance(k, str) else json.dumps(k): show(x) for k, x in v.items()}


shared = [1, 2]
values = {
    "atoms": [None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, -2**31, 2**31, -2**31 - 1,
              2**63 - 1, -2**63, 2**63, -2**63 - 1, 2**64, 10**40, -10**40, 2**2000 + 1],
    "floats": [0.0, -0.5, 1e300, 5e-324, 0.1, float("inf"), float("nan")],
    "texts": ["", "a", "ä\u20ac\U0001f600", "line\nback\\slash'quote\"", "x" * 300],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "nested": {"a": [{"b": (1, [2, {"c": None}])}], 1: "int key", "e": {}, "l": []},
    "shared": {"x": shared, "y": shared, "z": (shared, shared)},
    "batches": [list(range(1001)), list(range(1000)), {str(i): i for i in range(1000)},
                {str(i): i for i in range(1001)}],
    "big_memo": [[i] for i in range(300)] * 2,
    "bytes": [b"", b"\x00\x7f\x80\xff", bytes(range(256)) * 2],
    "set": {7},
}
out = []
for name, v in values.items():
    for protocol in range(6):
        if name in ("bytes", "set") and protocol < 2:
            continue
        if name == "batches" and protocol != 2:
            continue
        out.append({"name": f"{name}-{protocol}", "hex": pickle.dumps(v, protocol).hex(),
                    "shown": show(v), "same": protocol == 2})
od = collections.OrderedDict([("a", 1)])
od.attr = 5
objects = {
    "ordered": od,
    "default": collections.defaultdict(list, {"k": [1]}),
    "counter": collections.Counter("aab"),
    "delta": datetime.timedelta(3, 4),
    "class": collections.OrderedDict,
}
for name, v in objects.items():
    for protocol in range(6):
        out.append({"name": f"{name}-{protocol}", "hex": pickle.dumps(v, protocol).hex(),
                    "same": protocol == 2})
print("[" + ",\n".join(json.dumps(x) for x in out) + "]")
