"""The "right" batches of tests/golden/models/* as rows for ckpt-eval: rows.jsonl beside each
golden.safetensors, and right.loss (transformers 5.17, see make_models.py) for the test's awk.
The batches of tests/golden/lora/* likewise, without a loss."""
import glob
import json
import os

from safetensors import safe_open

for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "*/*/golden.safetensors"))):
    d = os.path.dirname(path)
    f = safe_open(path, "pt")
    side = "right." if "right.labels" in f.keys() else ""
    if side + "labels" not in f.keys() or f.get_slice(side + "labels").get_shape() != f.get_slice(side + "input_ids").get_shape():
        continue
    batch = [f.get_tensor(side + k).tolist() for k in ("input_ids", "attention_mask", "labels")]
    with open(os.path.join(d, "rows.jsonl"), "w") as out:
        for ids, mask, labels in zip(*batch):
            print(json.dumps({"input_ids": ids, "attention_mask": mask, "labels": labels}), file=out)
    if not side:
        continue
    with open(os.path.join(d, "loss.txt"), "w") as out:
        print(json.load(open(os.path.join(d, "golden.json")))["right.loss"], file=out)
