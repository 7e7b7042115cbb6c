#!/usr/bin/env bash
# fp8_curve.sh BUILD - how training in 8 bits goes beside bfloat16: a Llama of 140 M parameters from
# scratch on the text of this tree (sources and manuals), with the same seed and order in bf16 and
# with --fp8 in both formats; and in bf16 from other weights, which tells what chance alone does.
# Prints the mean loss of every 25 steps and the largest gap between those means and bf16's.
#
#   STEPS=300 WIDTH=2048 BLOCKS=2   of the runs and the model;  DEVICE=cuda
set -eu
cd "$(dirname "$0")/../.."
build=$1 steps=${STEPS:-300} width=${WIDTH:-2048} blocks=${BLOCKS:-2}
R=tools/recipes/demo
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
find README.md man libckpt formats trainer tools -name '*.[ch1357]' -o -name '*.cu' -o -name '*.md' | LC_ALL=C sort |
    xargs cat | awk '{ gsub(/[ \t]+/, " "); line = line " " $0 } NR % 10 == 0 { print line; line = "" }' > "$T/train.txt"
cat > "$T/config.json" <<C
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": $width,
 "intermediate_size": $((width * 4)), "num_hidden_layers": $blocks,
 "num_attention_heads": $((width / 128)), "num_key_value_heads": $((width / 128)),
 "vocab_size": $(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' $R/config.json),
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "hidden_act": "silu",
 "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2}
C
train() {       # NAME options...
    local name=$1; shift
    "$build/ckpt-train" -q --device "${DEVICE:-cuda}" --init "$T/config.json" --tokenizer $R/tokenizer --train-file "$T/train.txt" \
        --max-seq-length 256 --packing --per-device-train-batch-size 16 --learning-rate 3e-4 --warmup-steps 30 \
        --lr-scheduler-type cosine --max-steps "$steps" --logging-steps 1 --save-steps 1000000 --bf16 -o "$T/$name" "$@" >"$T/$name.log" 2>&1 ||
        { tail -3 "$T/$name.log" >&2; exit 1; }
    rm -rf "$T/$name"/checkpoint-*
    sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$name/metrics.jsonl" > "$T/$name.loss"
}
train bf16
train seed --seed 7
train hybrid --fp8
train e4m3 --fp8 --fp8-format e4m3
paste "$T/bf16.loss" "$T/seed.loss" "$T/hybrid.loss" "$T/e4m3.loss" | awk -v n=25 '
    BEGIN { printf "%8s %9s %9s %9s %9s\n", "steps", "bf16", "seed 7", "hybrid", "e4m3" }
    { for (i = 1; i <= 4; i++) sum[i] += $i }
    NR % n == 0 {
        printf "%8d", NR
        for (i = 1; i <= 4; i++) {
            m[i] = sum[i] / n; sum[i] = 0; gap = m[i] - m[1]; gap = gap < 0 ? -gap : gap
            if (gap > most[i]) most[i] = gap
            printf " %9.5f", m[i]
        }
        print ""
    }
    END { printf "%8s %9s %9.5f %9.5f %9.5f\n", "gap", "", most[2], most[3], most[4] }'
