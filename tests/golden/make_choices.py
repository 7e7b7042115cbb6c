#!/usr/bin/env python3
"""Multiple choice as lm-evaluation-harness has it: rows of the shapes of HellaSwag, ARC and MMLU, its figures, and its prompts.

Made with: lm_eval 0.4.13, torch 2.15.0 CPU fp32, transformers 5.24.0.  Usage: make_choices.py MODEL [OUT]
MODEL is what `ckpt-train --init tools/recipes/demo/config.json --tokenizer tools/recipes/demo/tokenizer --init-only` writes.
choices.json: a list for each shape: rows, acc and acc_norm, and for each row its context, its continuations and the right one.
"""
import json, os, random, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "peers"))
model, out = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "choices.json")
sys.argv = ["scores.py", tempfile.mkdtemp()]
import scores
import lm_eval
from lm_eval.models.huggingface import HFLM

lm = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=8)
golden = []
for name, make in (("hellaswag", scores.hellaswag), ("arc", scores.arc), ("mmlu", scores.mmlu)):
    scores.rng = random.Random(name)
    rows = [make() for _ in range(40)]
    task = scores.task_of(name, scores.save_rows("rows.jsonl", rows))
    got = lm_eval.evaluate(lm=lm, task_dict={name: task}, bootstrap_iters=0, log_samples=True)
    each = [[s["arguments"][0][0], [a[1] for a in s["arguments"]], int(s["target"])] for s in sorted(got["samples"][name], key=lambda s: s["doc_id"])]
    golden.append({"shape": name, **{k: got["results"][name][k + ",none"] for k in ("acc", "acc_norm")}, "rows": rows, "each": each})
json.dump(golden, open(out, "w", encoding="utf-8"), ensure_ascii=False, indent=0)
