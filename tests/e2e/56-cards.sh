# README.md of models: written by ckpt-merge for a run, with results by ckpt-push, and a user's words kept.
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv; cd "$T" || exit 1
cp -r "$M/base" base; printf -- '---\nlicense: other\nlicense_name: toy\nlicense_link: LICENSE\nlanguage: en\n---\n# Base\n' >base/README.md; echo free >base/LICENSE
train() { ckpt-train -q --model base --train-file "$M/rows.jsonl" --eval-file "$M/rows.jsonl" --eval-strategy steps --eval-steps 1 --per-device-train-batch-size 2 --max-seq-length 32 --threads 1 --max-steps 2 --save-steps 1 "$@"; }
t "a full run" train -o full
t "one of two shards" train -o shards --nproc 2 --zero-stage 3
t "an adapter's" train -o lora --lora-rank 4
merge() { ckpt-merge -q "$@" >/dev/null; }
t "shards are merged" merge -o m-shards shards/checkpoint-2
t "an adapter is merged" merge -o m-lora lora/checkpoint-2
front() { sed -n '2,/^---$/p' "$1/README.md" | grep -qx "$2"; }
for d in m-shards m-lora; do
    t "$d has a card" front $d 'library_name: transformers'
    t "$d: the evaluation is in it" grep -q '^- Perplexity: ' $d/README.md
    t "$d: and the table" grep -qE '^\| [0-9.]+ \| 2.0000 \| 2 \| [0-9.]+ \|$' $d/README.md
    t "$d: the run's settings" grep -qx -- '- train_batch_size: [12]' $d/README.md
    t "$d: no folder of this machine" bash -c "! grep -q '$T' $d/README.md"
    t "$d: the licence comes along" cmp base/LICENSE $d/LICENSE
done
t "the base's card has another name" cmp base/README.md m-lora/BASE_README.md
t "that of the checkpoint too" cmp base/README.md m-shards/BASE_README.md
t "what it says of licence and language holds" front m-lora 'license_name: toy'
t "the same again is the same" bash -c "ckpt-merge -q -o again shards/checkpoint-2 >/dev/null && cmp again/README.md m-shards/README.md"
cp -r shards/checkpoint-2 mine; printf 'my own words\n' >mine/README.md
t "a card in the input" merge -o m-mine mine
t "is kept" cmp mine/README.md m-mine/README.md
t "a model that is no run's has none" bash -c "ckpt-merge -q -o plain $M/base >/dev/null && [ ! -e plain/README.md ]"

# -- results ------------------------------------------------------------------------------------
ckpt-eval -q --json --eval-file "$M/rows.jsonl" --base base m-lora >eval.json
push() { ckpt-push -q "$@" >/dev/null; }
t "results of ckpt-eval go into the card" push --card-metrics eval.json --card-dataset acme/rows p1 m-lora
t "the source's stays" bash -c "! grep -q model-index m-lora/README.md"
t "with loss and perplexity" [ "$(sed -n '/^model-index:/,/^---$/p' p1/README.md | grep -c '^      value: [0-9]')" = 2 ]
t "of the model, not of its base" grep -q "value: $(sed -n 's/.*"model": "m-lora", "loss": \([0-9.]*\),.*/\1/p' eval.json)" p1/README.md
body() { awk 'n == 2 { print } /^---$/ { n++ }' "$1"; }
t "the body is the same" bash -c "$(declare -f body); cmp <(body m-lora/README.md) <(body p1/README.md)"
t "once more changes nothing" bash -c "ckpt-push -q --card-metrics eval.json --card-dataset acme/rows p2 p1 >/dev/null && cmp p1/README.md p2/README.md"
cp -r m-lora users
printf -- '---\r\n# mine\r\nlicense:   mit   # not yours\r\nmodel-index:\r\n- name: "Toy"\r\n  results: []\r\nzeta: [a,  b]\r\n---\r\nMy words  \r\n' >users/README.md
t "a user's card" push --card-metrics eval.json --card-dataset acme/rows p3 users
t "keeps its other lines" bash -c "grep -v '^ \|^- \|^model-index\|^metrics' p3/README.md | cmp - <(grep -v '^ \|^- \|^model-index' users/README.md)"
t "and its line ends" [ "$(grep -c $'\r$' p3/README.md)" = "$(wc -l <p3/README.md)" ]
t "results of a trainer" push --card-metrics full/eval_results.json --card-dataset a/b p4 m-shards
t "and of its state" push --card-metrics shards/trainer_state.json --card-dataset a/b p5 m-shards
t "are the same kind" grep -q '    - type: perplexity' p4/README.md p5/README.md
t "a model without a card gets one" push --card-metrics eval.json --card-dataset a/b p6 "$M/base"
t "with its library" front p6 'library_name: transformers'
expect_says 64 "results of no data set" "hint: --card-dataset" ckpt-push -q --card-metrics eval.json p7 m-lora
expect_says 65 "a file without results" "config.json: no results of an evaluation" ckpt-push -q --card-metrics base/config.json p7 m-lora
expect 66 "one that is not there" ckpt-push -q --card-metrics none.json p7 m-lora
expect 64 "a data set without results" ckpt-push -q --card-dataset a/b p7 m-lora
printf -- '---\na: [\n---\n' >users/README.md
expect_says 65 "a card that is no YAML" "README.md: line" ckpt-push -q --card-metrics eval.json --card-dataset a/b p7 users
t "nothing was published" [ ! -e p7 ]
# A signature covers the card as it is sent.
openssl ecparam -name prime256v1 -genkey -noout -out key.pem; openssl pkey -in key.pem -pubout -out key.pub
t "signed with results" push --sign key.pem --card-metrics eval.json --card-dataset acme/rows p8 m-lora
t "holds" ckpt-inspect -q --verify-signature --public-key key.pub p8
