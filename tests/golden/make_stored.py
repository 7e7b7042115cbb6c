#!/usr/bin/env python3
"""make_stored.py - tokenizers/stored.json: what tokenizers 0.23.3 makes of batches when tokenizer.json itself has a
truncation and a padding.  Each case: name, the two values that are put in the file, indices of strings.jsonl (joined
by blanks when several), and the ids and type ids of the batch."""
import itertools, json, os
from tokenizers import Tokenizer

D = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
strings = [json.loads(l) for l in open(D + "/strings.jsonl")]
BATCH = [[0], [1, 2, 3], [], list(range(20))]


def cut(n, stride=0, direction="Right", strategy="LongestFirst"):
    return {"direction": direction, "max_length": n, "strategy": strategy, "stride": stride}


def pad(strategy, direction="Right", multiple=None, kind=0):
    return {"strategy": strategy, "direction": direction, "pad_to_multiple_of": multiple, "pad_id": 3, "pad_type_id": kind, "pad_token": "<x>"}


CASES = [(cut(64), None), (cut(5), None), (cut(9, 3, "Left"), None), (cut(2, 0, "Right", "OnlyFirst"), None), (None, pad("BatchLongest")),
         (None, pad({"Fixed": 20})), (cut(16), pad({"Fixed": 16})), (cut(21), pad("BatchLongest", "Left", 8, 1)), (cut(128), pad({"Fixed": 128}))]
out = []
for name, (t, p) in itertools.product(("bert", "bloom", "t5"), CASES):
    j = json.load(open("%s/%s/tokenizer.json" % (D, name)))
    j["truncation"], j["padding"] = t, p
    e = Tokenizer.from_str(json.dumps(j)).encode_batch([" ".join(strings[i] for i in b) for b in BATCH])
    out.append({"name": name, "truncation": t, "padding": p, "batch": BATCH, "ids": [x.ids for x in e], "type_ids": [x.type_ids for x in e]})
with open(D + "/stored.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
