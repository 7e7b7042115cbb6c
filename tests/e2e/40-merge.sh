# ckpt-merge: formats in and out, options, refusals.  A6, B5, E8
. "$(dirname "$0")/lib.sh"
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
t "ZeRO-3 to one file, verified" ckpt-merge -q --verify --tied keep -o "$T/a.safetensors" "$DS"
expect 0 "holds what DeepSpeed's converter gives" ckpt-inspect --compare "$G/deepspeed/0.19-s3_w2_bf16/expected.safetensors" "$T/a.safetensors"
t "again: the same bytes" bash -c "ckpt-merge -q --tied keep -o $T/b.safetensors $DS && cmp $T/a.safetensors $T/b.safetensors"
t "streamed" bash -c "ckpt-merge -q --tied keep -o - $DS > $T/s.safetensors"
expect 0 "a stream holds the same" ckpt-inspect --compare "$T/a.safetensors" "$T/s.safetensors"
t "a torch archive, verified" ckpt-merge -q --verify --tied keep -o "$T/a.pt" "$DS"
t "shards and an index" bash -c "ckpt-merge -q --max-shard-size 2KB -o $T/dir $DS && [ -e $T/dir/model.safetensors.index.json ] && ckpt-inspect $T/dir | grep -q 'format: hf'"
t "another dtype" bash -c "ckpt-merge -q --dtype bf16 --dtype '*norm*=f32' -o $T/h.safetensors $DS && ckpt-inspect $T/h.safetensors | grep -E 'norm.weight +F32' && ckpt-inspect $T/h.safetensors | grep -E 'emb.weight +BF16'"
t "chosen and renamed" bash -c "ckpt-merge -q --include 'l1.*' --exclude '*bias' --rename l1.=first. -o $T/c.safetensors $DS && ckpt-inspect --json $T/c.safetensors | grep -q first.lora_A.weight"
t "dry run writes nothing" bash -c "ckpt-merge --dry-run -o $T/dry $DS | grep -q 'output format' && [ ! -e $T/dry ]"
expect 73 "an output that exists" ckpt-merge -q -o "$T/a.safetensors" "$DS"
t "stays as it was" cmp "$T/a.safetensors" "$T/b.safetensors"
t "unless told" ckpt-merge -q --overwrite --tied keep -o "$T/b.safetensors" "$DS"
expect 73 "the input itself" ckpt-merge -q --overwrite -o "$T/a.safetensors" "$T/a.safetensors"
expect 66 "an input that is not there" ckpt-merge -o "$T/x" "$T/nothing"
expect 66 "a glob that matches nothing" ckpt-merge --include nosuch -o "$T/x" "$DS"
for f in "$G"/malicious/pt/reduce_*.pt; do
    ckpt-merge -q -o "$T/evil.safetensors" "$f" >/dev/null 2>&1; rc=$?
    if { [ $rc = 77 ] || [ $rc = 65 ]; } && [ -z "$(ls -A "$T" | grep evil)" ]; then echo "ok refused: $(basename "$f")"; else echo "not ok refused: $(basename "$f"): $rc"; fi
done
for l in bloom-qkv gpt2-conv1d llama-all-linear llama-patterns; do
    t "LoRA $l" bash -c "ckpt-merge -q --adapter $G/lora/$l/adapter -o $T/$l $G/lora/$l/base"
done
expect 65 "an adapter of another base" ckpt-merge --adapter "$G/lora/llama-patterns/adapter" -o "$T/w" "$G/lora/bloom-qkv/base"
expect 65 "DoRA is not merged" ckpt-merge --adapter "$G/lora/llama-dora/adapter" -o "$T/w" "$G/lora/llama-dora/base"
t "nothing is left of refused merges" bash -c "! ls -A $T | grep -E '^\.?w(\.|\$)'"
t "paths from stdin, as JSON" bash -c "cp -r $DS $T/run; echo $T/run | ckpt-merge -q --json | grep -q '\"path\":\"$T/run-merged\"'"
t "unmerged names are all there with their config" bash -c "[ -e $T/bloom-qkv/config.json ]"
