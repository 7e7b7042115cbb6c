#!/usr/bin/env bash
# cards.sh PYTHON BUILD - huggingface_hub reads the cards that ckpt-train and ckpt-merge write and ckpt-push puts
# results into; what it wrote itself keeps its other keys.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
M=tests/golden/lora/bloom-qkv
export CKPT_CACHE=$T/cache
cp -r "$M/base" "$T/base"; printf -- '---\nlicense: apache-2.0\nlanguage: ["no", en]\npipeline_tag: text-generation\n---\n# Base\n' >"$T/base/README.md"
"$B/ckpt-train" -q --model "$T/base" --train-file "$M/rows.jsonl" --eval-file "$M/rows.jsonl" --eval-strategy steps --eval-steps 1 \
    --per-device-train-batch-size 2 --max-seq-length 32 --threads 1 --max-steps 2 --save-steps 2 -o "$T/run" >/dev/null
"$B/ckpt-merge" -q -o "$T/merged" "$T/run/checkpoint-2" >/dev/null
"$B/ckpt-eval" -q --json --eval-file "$M/rows.jsonl" "$T/merged" >"$T/eval.json"
push() { "$B/ckpt-push" -q --card-metrics "$T/eval.json" --card-dataset acme/rows "$@" >/dev/null; }
push "$T/out" "$T/merged"
cp -r "$T/merged" "$T/theirs"
"$PEERS" -P - "$T" write <<'PY'
import sys
from huggingface_hub import EvalResult, ModelCard, ModelCardData
t = sys.argv[1]
results = [EvalResult(task_type="text-generation", dataset_type="acme/rows", dataset_name="Rows", metric_type="perplexity", metric_value=999.0),
           EvalResult(task_type="text-generation", dataset_type="acme/rows", dataset_name="Rows", dataset_split="validation", metric_type="bleu", metric_value=1e-7, metric_name="BLEU ü: 1")]
data = ModelCardData(model_name="theirs", eval_results=results, license="mit", language=["no", "de"], tags=["yes", "1.0", "a: b"], base_model="acme/base", extra={"deep": [1, {"x": None}]})
ModelCard("---\n" + data.to_yaml() + "\n---\n\n# Theirs\n\n---\n\ntext: [not yaml\n").save(t + "/theirs/README.md")
PY
cp "$T/theirs/README.md" "$T/before.md"
push "$T/theirs-out" "$T/theirs"
"$PEERS" -P - "$T" <<'PY'
import json, sys
from huggingface_hub import ModelCard, metadata_eval_result
t = sys.argv[1]
scores = json.load(open(t + "/eval.json"))["scores"][-1]
run = ModelCard.load(t + "/run/README.md").data
assert run.license == "apache-2.0" and run.language == ["no", "en"] and run.pipeline_tag == "text-generation", run
assert run.to_dict()["library_name"] == "transformers" and run.metrics == ["perplexity"], run
assert {r.metric_type for r in run.eval_results} == {"loss", "perplexity"} and run.eval_results[0].dataset_type == "rows.jsonl"
merged = ModelCard.load(t + "/merged/README.md")
assert merged.data.license == "apache-2.0" and merged.data.tags == ["generated_from_trainer"] and "Perplexity" in merged.text
out = ModelCard.load(t + "/out/README.md")
got = {r.metric_type: r.metric_value for r in out.data.eval_results}
assert got == {"loss": scores["loss"], "perplexity": scores["perplexity"]}, got
assert all(r.dataset_type == "acme/rows" and r.task_type == "text-generation" for r in out.data.eval_results)
assert out.text == merged.text and out.data.model_name
# The same that huggingface_hub makes of these figures.
want = metadata_eval_result(model_pretty_name=out.data.model_name, task_pretty_name=None, task_id="text-generation", metrics_pretty_name=None, metrics_id="loss",
                            metrics_value=scores["loss"], dataset_pretty_name="acme/rows", dataset_id="acme/rows")["model-index"][0]["results"][0]
ours = out.data.to_dict()["model-index"][0]["results"][0]
assert ours["dataset"]["type"] == want["dataset"]["type"] and ours["task"]["type"] == want["task"]["type"]
assert ours["metrics"][0]["value"] == want["metrics"][0]["value"] and ours["metrics"][0]["type"] == want["metrics"][0]["type"]
before, after = ModelCard.load(t + "/before.md"), ModelCard.load(t + "/theirs-out/README.md")
assert after.text == before.text
a, b = before.data.to_dict(), after.data.to_dict()
assert set(b) == set(a) | {"metrics"} and b["metrics"] == ["perplexity"], set(b) ^ set(a)
assert all(a[k] == b[k] for k in a if k != "model-index"), [k for k in a if a[k] != b[k]]
got = {(r.metric_type, r.dataset_split): r.metric_value for r in after.data.eval_results}
assert got == {("perplexity", None): scores["perplexity"], ("loss", None): scores["loss"], ("bleu", "validation"): 1e-7}, got
assert [r for r in after.data.eval_results if r.metric_type == "bleu"][0].metric_name == "BLEU ü: 1"
print("huggingface_hub reads the cards, and what it wrote is kept")
PY
