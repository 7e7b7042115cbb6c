# ckpt-merge: formats in and out, options, refusals.  A6, B5, E8
. "$(dirname "$0")/lib.sh"
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
t "ZeRO-3 to one file, verified" ckpt-merge -q --verify --tied keep -o "$T/a.safetensors" "$DS"
expect 0 "holds what DeepSpeed's converter gives" ckpt-inspect --diff "$G/deepspeed/0.19-s3_w2_bf16/expected.safetensors" "$T/a.safetensors"
t "again: the same bytes" bash -c "ckpt-merge -q --tied keep -o $T/b.safetensors $DS && cmp $T/a.safetensors $T/b.safetensors"
t "streamed" bash -c "ckpt-merge -q --tied keep -o - $DS > $T/s.safetensors"
t "a stream is the file, byte by byte" cmp "$T/a.safetensors" "$T/s.safetensors"
expect 64 "a stream of a format that cannot be one" ckpt-merge --to torch -o - "$DS"
t "a torch archive, verified" ckpt-merge -q --verify --tied keep -o "$T/a.pt" "$DS"
# Values beyond the range of F16: told, since they are infinite there.  1e5 and 1 in F32.
{ printf '\71\0\0\0\0\0\0\0{"wide":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'; printf '\0\120\303\107\0\0\200\77'; } > "$T/wide.safetensors"
into() { ckpt-merge --provenance none --dtype "$1" -o "$T/wide.$1.safetensors" "$T/wide.safetensors" 2>"$T/.err"; }
t "values beyond F16" into f16
t "are told" grep -q 'warning: tensor wide: values beyond 65504 are infinite in F16; BF16 and F32 hold them' "$T/.err"
t "BF16 has them" into bf16
t "which is nothing to tell" [ ! -s "$T/.err" ]
# 2K: five files, none of them longer than the limit and a header, all of them in the index.
t "shards and an index" ckpt-merge -q --tied keep --max-shard-size 2K -o "$T/dir" "$DS"
expect 0 "hold what the one file holds" ckpt-inspect --diff "$T/a.safetensors" "$T/dir"
shards() {
    (cd "$T/dir" && ls model-0000?-of-00005.safetensors) > "$T/here" &&
    grep -o 'model-[0-9a-z-]*.safetensors' "$T/dir/model.safetensors.index.json" | sort -u | diff - "$T/here" &&
    [ "$(wc -l < "$T/here")" = 5 ] && [ "$(ls -A "$T/dir" | wc -l)" = 7 ]
}
t "five, those of the index and no other" shards
t "the index counts bytes" grep -q '"total_size": 7858$' "$T/dir/model.safetensors.index.json"
t "again: the same directory" ckpt-merge -q --tied keep --max-shard-size 2K -o "$T/dir2" "$DS"
t "byte by byte" same_files "$T/dir" "$T/dir2"
# Where it came from: every file by digest, a torch archive by its members, the options.
M=$G/models/bloom-a; W=$(stat -c %s "$M/model.safetensors")
t "a record of a model" ckpt-merge -q --provenance sha256 --dtype bf16 -o "$T/rec" "$M"
t "the record names the file, its bytes and its digest" grep -qF "{\"name\":\"model.safetensors\",\"bytes\":$W,\"sha256\":\"$(sha256sum < "$M/model.safetensors" | cut -d' ' -f1)\"}" "$T/rec/ckpt_provenance.json"
t "the record has the options" grep -qF '"options":{"dtype":["bf16"],' "$T/rec/ckpt_provenance.json"
t "of shards: by their members" grep -q '"members_xxh128":"[0-9a-f]\{32\}"' "$T/dir/ckpt_provenance.json"
t "no zeros are left" bash -c "! grep -q 00000000 $T/dir/ckpt_provenance.json $T/rec/ckpt_provenance.json"
t "merged again: a record of its own" ckpt-merge -q --provenance sha256 -o "$T/rec2" "$T/rec"
t "the second record names the first output by its digest" grep -qF "\"sha256\":\"$(sha256sum < "$T/rec/model.safetensors" | cut -d' ' -f1)\"" "$T/rec2/ckpt_provenance.json"
t "in one file: among its metadata" ckpt-merge -q --provenance sha256 -o "$T/rec.safetensors" "$T/rec"
t "a file's metadata name the input by its digest" bash -c "head -c 4096 $T/rec.safetensors | grep -aqF $(sha256sum < "$T/rec/model.safetensors" | cut -d' ' -f1)"
t "safetensors with a record can be opened" ckpt-inspect --diff "$T/rec" "$T/rec.safetensors"
t "a stream cannot wait: names" bash -c "ckpt-merge -q -o - $M > $T/s1 && ckpt-merge -q --provenance names -o $T/s2.safetensors $M && cmp $T/s1 $T/s2.safetensors"
t "in a torch archive: a member" bash -c "ckpt-merge -q --provenance sha256 -o $T/rec.pt $T/rec && grep -aqF 'rec/ckpt_provenance.json' $T/rec.pt && grep -aqF $(sha256sum < "$T/rec/model.safetensors" | cut -d' ' -f1) $T/rec.pt"
t "a torch file with a record verifies" ckpt-inspect --verify "$T/rec.pt"
t "no record when none is wanted" bash -c "ckpt-merge -q --provenance none -o $T/bare $M && [ ! -e $T/bare/ckpt_provenance.json ]"
# Means: of equal models the model, by weights; what does not fit is refused.
t "the mean of a model and itself" ckpt-merge -q --average --weights 1,3 -o "$T/mean" "$M" "$M"
expect 0 "is the model" ckpt-inspect --diff "$M" "$T/mean"
expect 64 "two weights for three" ckpt-merge --average --weights 1,2 -o "$T/x" "$M" "$M" "$M"
expect 64 "weights that are none" ckpt-merge --average --weights 1,x -o "$T/x" "$M" "$M"
expect 64 "weights without a mean" ckpt-merge --weights 1 -o "$T/x" "$M"
expect 64 "the mean of one" ckpt-merge --average -o "$T/x" "$M"
expect 65 "the mean of strangers" ckpt-merge --average -o "$T/x" "$M" "$DS"
t "leaves nothing" [ ! -e "$T/x" ]
expect_says 73 "a directory that exists" "hint: it is a directory" ckpt-merge -q -o "$T/dir2" "$T/a.safetensors"
expect 73 "is never replaced" ckpt-merge -q --overwrite -o "$T/dir2" "$T/a.safetensors"
t "a refused overwrite leaves the directory as it was" same_files "$T/dir" "$T/dir2"
t "another dtype" bash -c "ckpt-merge -q --dtype bf16 --dtype '*norm*=f32' -o $T/h.safetensors $DS && ckpt-inspect $T/h.safetensors | grep -E 'norm.weight +F32' && ckpt-inspect $T/h.safetensors | grep -E 'emb.weight +BF16'"
t "chosen and renamed" bash -c "ckpt-merge -q --include 'l1.*' --exclude '*bias' --rename l1.=first. -o $T/c.safetensors $DS && ckpt-inspect --json $T/c.safetensors | grep -q first.lora_A.weight"
mkdir "$T/dry"; cp -r "$DS" "$T/dry/run"
expect 0 "a dry run" ckpt-merge -q --dry-run --dtype bf16 -o "$T/dry/out" "$DS"
t "prints what would be written" bash -c "grep -q 'output format: hf' $T/.out && grep -qx 'input format: deepspeed' $T/.out && grep -qE '^emb.weight +BF16 +\[31, 18\]' $T/.out"
expect_prints 0 "as JSON" "\"output\": \"$T/dry/run-merged\"" ckpt-merge -q --dry-run --json "$T/dry/run"
t "--dry-run writes nothing" [ "$(ls -A "$T/dry")" = run ]
# What the merge refuses before it writes, its dry run refuses: line by line, with its status; and it creates nothing.
mkdir "$T/way"; mkdir "$T/way/dir"; mkfifo "$T/way/fifo.safetensors"; ln -s nowhere "$T/way/dead.safetensors"; echo x | tee "$T/way/file" >"$T/way/file.safetensors"
foretold 73 "a file is in the way" ckpt-merge -q -o file.safetensors "$DS"
foretold 73 "a link to nothing is" ckpt-merge -q -o dead.safetensors "$DS"
foretold 73 "a fifo is" ckpt-merge -q --overwrite -o fifo.safetensors "$DS"
foretold 73 "a directory is" ckpt-merge -q -o dir "$DS"
foretold 73 "a directory, and files may be replaced" ckpt-merge -q --overwrite -o dir "$DS"
foretold 73 "a file where a directory is wanted" ckpt-merge -q -o file "$DS"
foretold 73 "no folder for it" ckpt-merge -q -o none/out "$DS"
foretold 73 "a file as its folder" ckpt-merge -q -o file/out.safetensors "$DS"
foretold 64 "an address" ckpt-merge -q -o hf://acme/toy "$DS"
foretold 64 "one file of several inputs" ckpt-merge -q -o x.safetensors "$DS" "$M"
foretold 73 "a file as the folder of several" ckpt-merge -q -o file/x "$DS" "$M"
foretold 73 "two outputs of one name" ckpt-merge -q -o twice "$M" "$M"
foretold 65 "a model as an adapter" ckpt-merge -q --to peft -o p "$M"
foretold 65 "a model as DeepSpeed's" ckpt-merge -q --to deepspeed -o p "$M"
foretold 0 "what is free" ckpt-merge -q -o free "$M"
foretold 73 "it is free once" ckpt-merge -q -o free "$M"
foretold 0 "a new folder of several" ckpt-merge -q -o new/below "$DS" "$M"
foretold 73 "which then has them" ckpt-merge -q -o new/below "$DS" "$M"
for to in free.tar free.gguf free.pt free.safetensors; do foretold 0 "$to" ckpt-merge -q -o $to "$M"; foretold 73 "$to, once" ckpt-merge -q -o $to "$M"; done
foretold 0 "to the shell" ckpt-merge -q -o - "$M"
(cd "$T/way" && ckpt-merge -q --dry-run --overwrite -o file.safetensors "$DS") >"$T/.out" 2>&1
t "that a file is replaced is said" grep -qx 'replaces: the file that has this name' "$T/.out"
t "and to programs" bash -c "cd $T/way && ckpt-merge -q --dry-run --json --overwrite -o file.safetensors $DS | grep -q '\"replaces\": true' && ckpt-merge -q --dry-run --json -o another $DS | grep -q '\"replaces\": false'"
expect_says 73 "an output that exists" "hint: --overwrite replaces it" ckpt-merge -q -o "$T/a.safetensors" "$DS"
t "the existing output stays as it was" cmp "$T/a.safetensors" "$T/b.safetensors"
t "unless told" ckpt-merge -q --overwrite --tied keep -o "$T/b.safetensors" "$DS"
for name in x.pt x.gguf x.tar; do
    echo there >"$T/$name"; expect_says 73 "an output $name that exists" "hint: --overwrite replaces it" ckpt-merge -q --tied keep -o "$T/$name" "$M"
    t "is replaced then" ckpt-merge -q --overwrite --tied keep -o "$T/$name" "$M"
done
: >"$T/x.list"; expect_says 73 "a file where a directory is written" "replaces files by files only" ckpt-merge -q --overwrite --to hf -o "$T/x.list" "$M"
expect 73 "the input itself" ckpt-merge -q --overwrite -o "$T/a.safetensors" "$T/a.safetensors"
expect 66 "an input that is not there" ckpt-merge -o "$T/x" "$T/nothing"
t "without its path twice" bash -c "[ \$(grep -oF '$T/nothing' $T/.err | wc -l) = 1 ]"
expect 66 "a glob that matches nothing" ckpt-merge --include nosuch -o "$T/x" "$DS"
expect 66 "nor when it excludes" ckpt-merge --exclude nosuch -o "$T/x" "$DS"
expect 66 "nor when it casts" ckpt-merge -q --dtype f32 --dtype 'zz*=bf16' -o "$T/x" "$DS"
t "the pattern without effect is named" says "--dtype zz*=bf16: no floating tensor matches"
expect 66 "nor a prefix" ckpt-merge --rename nosuch.=x. -o "$T/x" "$DS"
t "nothing came of them" [ ! -e "$T/x" ]
# Hostile files: what would execute is 77 with the name it asks for, the rest 65; in a folder of
# its own, where nothing may be left.
mkdir "$T/evil"
hostile() { expect "$1" "refused: $2" ckpt-merge -q -o "$T/evil/x.safetensors" "$G/malicious/pt/$2.pt"; }
hostile 77 reduce_os_system_then_dict
t "the refused name is given" says "asks for os.system"
for f in reduce_posix_system reduce_in_value legacy_reduce reduce_nested_backward_hooks build_setstate_gadget \
    builtins_exec_py3 getattr_chain global_torch_attr stack_global_dotted obj_system zip_dotdot zip_absolute; do hostile 77 $f; done
for f in reduce_in_storage_pid zip_overlap zip_deflate_bomb zip_dup_entry t_numel_small t_offset_neg \
    t_stride_oob trunc_0916 recursion_list zip_bad_crc; do hostile 65 $f; done
t "nothing is left of them" [ -z "$(ls -A "$T/evil")" ]
t "--no-checksums accepts bytes with another checksum" ckpt-merge -q --no-checksums -o "$T/evil/crc.safetensors" "$G/malicious/pt/zip_bad_crc.pt"
# A bit in the middle of a rank's optimizer state, far from every header.
cp -r "$DS" "$T/flipped"; f=$T/flipped/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt
at=$(grep -obUaF data/6 "$f" | head -1 | cut -d: -f1)
printf '\x5a' | dd of="$f" bs=1 seek=$((at + 600)) conv=notrunc 2>/dev/null
expect 65 "a shard with a bit changed" ckpt-merge -q -o "$T/flipped.safetensors" "$T/flipped"
t "the damaged file and member are named" says 'rank_0_mp_rank_00_optim_states.pt: data/6: the '
t "--no-checksums accepts the damaged checkpoint" ckpt-merge -q --no-checksums -o "$T/flipped.safetensors" "$T/flipped"
t "the harmless twin is read" ckpt-merge -q -o "$T/evil/ok.safetensors" "$G/malicious/pt/ok_plain.pt"
# Paths from stdin: outputs beside the inputs, or below --output; each is told once it is there.
cp -r "$DS" "$T/run 1"; cp -r "$G/lora/bloom-qkv/base" "$T/run2"; mkdir "$T/below"
lines() { printf '%s\n' "$T/run 1" "$T/run2" | ckpt-merge -q "$@"; }
expect 0 "paths from stdin" lines
t "outputs are named one per line" diff "$T/.out" <(printf '%s\n' "$T/run 1-merged" "$T/run2-merged")
t "hold what they should" bash -c "ckpt-inspect --diff '$T/run2' '$T/run2-merged'"
expect 0 "below a directory" lines -o "$T/below"
t "under the inputs' names" same_files "$T/below/run2" "$T/run2-merged"
rm -rf "$T"/run*-merged
expect 0 "as JSON" lines --json
t "an object a line" diff "$T/.out" <(printf '{"path":"%s"}\n' "$T/run 1-merged" "$T/run2-merged")
rm -rf "$T"/run*-merged
nul() { printf '%s\0' "$T/run 1" "$T/run2" | ckpt-merge -q -0 | tr '\0' '\n'; return "${PIPESTATUS[1]}"; }
expect 0 "NUL-separated" nul
t "NUL-separated paths name the same outputs" diff "$T/.out" <(printf '%s\n' "$T/run 1-merged" "$T/run2-merged")
rm -rf "$T/deep"
expect 0 "a directory that is not there is made" ckpt-merge -q -o "$T/deep/er" "$T/run2" "$G/torch/shared.pt"
t "each output is below the folder" bash -c "[ -e $T/deep/er/run2/config.json ] && [ -e $T/deep/er/shared.pt ]"
expect 64 "several inputs, one file" ckpt-merge -q -o "$T/one.safetensors" "$T/run2" "$G/torch/shared.pt"
expect 64 "also by stdin" lines -o "$T/one.pt"
expect 73 "a file where the directory goes" ckpt-merge -q -o "$T/a.pt/x" "$T/run2" "$G/torch/shared.pt"
half() { printf '%s\n' "$T/nothing" "$T/run2" | ckpt-merge -q -o "$T/below2"; }
mkdir "$T/below2"; expect 66 "one input of two is not there" half
