# The duties of system D, as its runs left them.
slice=${SLICE:-25600}; F1=$out/1/opt_1.3B_0-$slice-epoch-1.pt F2=$out/2/opt_1.3B_$slice-$((2 * slice))-epoch-2.pt
steps() { sed -n 's/.*"epoch":\([0-9.]*\),.*"loss".*"step":\([0-9]*\).*/\2/p' "$out/$1/metrics.jsonl" | tr '\n' ' '; }
sharded() { grep -qE 'ranks: 2 \(.*\), ZeRO stage 3' "$out/1.log" && ckpt-inspect --args "$(newest "$out/1")" >"$out/.args" && grep -qiE '^fp16 +true' "$out/.args" && grep -qiE '^gradient_checkpointing +true' "$out/.args" && grep -qE '^max_grad_norm +1' "$out/.args"; }
slices() { [ "$(steps 1 | wc -w)" = $((slice / 128)) ] && ckpt-inspect --args "$(newest "$out/1")" | grep -qE '^gradient_accumulation_steps +16'; }
whole() {       # a torch file with the names of the model, the tied head too, in the model's values
    ckpt-inspect "$F1" | grep -q '^format: torch' && ckpt-merge -q --tied keep -o "$out/kept.safetensors" "$F1" && ckpt-inspect "$out/kept.safetensors" | grep -q '^lm_head.weight ' && ckpt-merge -q --tied drop -o "$out/f1.safetensors" "$F1" && ckpt-inspect -q --diff "$out/f1.safetensors" "$out/1/model.safetensors"
}
follows() { local n=$((slice / 128)); [ "$(steps 2 | wc -w)" = "$n" ] && [ "$(steps 2 | cut -d' ' -f1)" = $((n + 1)) ] && [ -s "$F2" ] && grep -q '"epoch":2.0,' "$out/2/metrics.jsonl"; }
reports() {
    local w; w=$(find "$out/1/wandb/" -name 'run-*.wandb'); ckpt-inspect --json "$w" >"$out/.tags" && grep -q '"parameters/' "$out/.tags" && grep -q '"gradients/' "$out/.tags" &&
        [ "$(grep -aoE 'checkpoint_global_step_[0-9]+' "$w" | sort -u | wc -l)" = 1 ]
}
compared() { ckpt-eval -q "${task[@]}" --eval-file "$EVAL" --base "$base" --generate 1 --max-new-tokens 8 "$out/2" >"$out/.eval" && grep -c "$out/2" "$out/.eval" && grep -q "$base" "$out/.eval"; }
grep -v num_processes "$system/fsdp.yaml" >"$out/fsdp.yaml"           # torchrun says how many
worker() { RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ckpt-train -q "${task[@]}" --config "$out/fsdp.yaml" --config "$system/run.yaml" "${model[@]}" --train-file "$DATA" --end-idx "$slice" --num-train-epochs 1 --report-to none --histogram-steps 0 "${more[@]}" -o "$out/torchrun"; }
torchrun() { local port=$((15000 + RANDOM % 15000)) pid; worker 1 & pid=$!; worker 0 && wait $pid && diff <(losses "$out/1") <(losses "$out/torchrun"); }
# Strictly what the model has: every name of it and its head, no other, in each file that the repository keeps.
names() { ckpt-inspect --json "$1" | sed -nE 's/^ *\{"name": "([^"]*)".*/\1/p' | sort; }
strict() {
    local f; { names "$base"; echo lm_head.weight; } | sort -u >"$out/.names"
    for f in "$out/clone"/opt_1.3B_*.pt; do ckpt-merge -q --overwrite --tied keep -o "$out/kept.safetensors" "$f" && diff "$out/.names" <(names "$out/kept.safetensors") || { echo "$f"; return 1; }; done
}
kept() { [ "$(find "$out/clone" -name 'checkpoint-*' | wc -l)/$(find "$out/clone" -name 'opt_1.3B_*.pt' | wc -l)" = 2/2 ] && follows && ckpt-train --config "$system/run.yaml" --print-config | grep -q "^train_sampling_strategy: distributed" && strict; }
judged() { ckpt-eval -q --json "${task[@]}" --eval-file "$EVAL" --base "$base" "$(cat "$out/newest")" >"$out/perplexity.json" && grep -qE '"figure": "perplexity", "value": [0-9.]+, "low": [0-9.]+, "high": [0-9.]+, "base": [0-9.]+' "$out/perplexity.json"; }
cloned "$hub" "$out/clone"
root() { (cd "$(cat "$out/newest")" && find . -type f | sort | xargs sha256sum) | (cd "$out/clone/slice-2/$(basename "$(cat "$out/newest")")" && sha256sum -c --quiet); }
looks() { ckpt-inspect -q "$F1" "$(newest "$out/2")" "$out"/2/wandb/offline*/run-*.wandb >/dev/null; }

duty D1 "FULL_SHARD by accelerate's file on two workers; fp16, recomputed blocks, clipping at 1.0" sharded
duty D2 "slices by --start-idx and --end-idx; 4 x 16 x 2 = 128 rows a step" slices
duty D3 "$(basename "$F1"): one state dict, the tied head too" whole
duty D4 "from that file the next slice goes on, in step and epoch" follows
duty D5 "W&B's histograms, a checkpoint as an artifact" reports
duty D6 "losses and generations beside the base model's" compared
duty D7 "with torchrun's variables the same losses" torchrun
duty D8 "order of DistributedSampler; every checkpoint is in the repository, side by side, with the model's names and its tied head" kept
duty X3 "loss and perplexity of held-out abstracts beside the base's, with intervals" judged
duty X1 "one line: train, merge, evaluate, publish; the clone has the bytes of what was merged" root
duty X2 "state dict, shards and W&B's file are inspected" looks
ticks
