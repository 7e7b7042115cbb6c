# Chats in training and evaluation: what is learnt of them, which template they go through.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
# A conversation as messages, as ShareGPT, as a pair of lists, and as the texts a template makes of it.
rows() { for n in one two three four five six seven eight; do printf "$1\n" "$n" "$n"; done; }
rows '{"messages":[{"role":"user","content":"Define %s."},{"role":"assistant","content":"%s is a number."}]}' > "$T/chat.jsonl"
rows '{"conversations":[{"from":"human","value":"Define %s."},{"from":"gpt","value":"%s is a number."}]}' > "$T/gpt.jsonl"
rows '{"prompt":[{"role":"user","content":"Define %s."}],"completion":[{"role":"assistant","content":"%s is a number."}]}' > "$T/pair.jsonl"
rows '{"prompt":"# user\\nDefine %s.\\n# assistant\\n","completion":"%s is a number.</s>\\n"}' > "$T/text.jsonl"
sed 's/"messages"/"talk"/' "$T/chat.jsonl" > "$T/talk.jsonl"
train() { # NAME FILE [option ...]
    local name=$1 file=$2; shift 2
    ckpt-train -q --model "$T/base" --train-file "$file" --max-seq-length 64 --learning-rate 2e-3 --max-steps 3 --logging-steps 1 \
        --per-device-train-batch-size 4 -o "$T/$name" "$@"
}
differ() { ! same_losses "$@" > /dev/null; }
expect 78 "a chat without a template" train x "$T/chat.jsonl"
t "a model without a chat template is refused" says "no chat template, neither chat_template.jinja nor in tokenizer_config.json"
t "the hint names --chat-template" says "hint: give one with --chat-template FILE"
printf '%s' "{% for m in messages %}# {{ m.role }}
{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}

{% endfor %}{% if add_generation_prompt %}# assistant
{% endif %}" > "$T/base/chat_template.jinja"
t "texts" train text "$T/text.jsonl" --no-add-eos-token
t "messages" train chat "$T/chat.jsonl"
t "have the losses of the texts: on the assistant's turns alone" same_losses text chat
for f in gpt pair; do t "$f" train $f "$T/$f.jsonl"; t "has them too" same_losses text $f; done
t "a column of another name" train talk "$T/talk.jsonl" --messages-field talk
t "has them too" same_losses text talk
t "a mapped name" train mapped "$T/talk.jsonl" --field-mapping '{"messages": "talk"}'
t "has them too" same_losses text mapped
t "two ranks" train ranks "$T/chat.jsonl" --nproc 2 --per-device-train-batch-size 2
t "the loss on all tokens" train all "$T/chat.jsonl" --train-on-prompt
t "loss on all tokens differs" differ text all
# The same in a run file.
printf 'train_file: %s\nmessages_field: talk\nchat_template: %s\n' "$T/talk.jsonl" "$T/base/chat_template.jinja" > "$T/run.yaml"
t "a run file" ckpt-train -q --config "$T/run.yaml" --model "$T/base" --max-seq-length 64 --learning-rate 2e-3 --max-steps 3 --logging-steps 1 \
    --per-device-train-batch-size 4 -o "$T/file"
t "a run file gives the same losses" same_losses text file
# Another template, marked by itself; it goes with the model.
printf '%s' "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\
{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}" > "$T/own.jinja"
t "a template of one's own" train own "$T/chat.jsonl" --chat-template "$T/own.jinja"
t "another template gives other losses" differ text own
t "the template is saved with the model" cmp "$T/own.jinja" "$T/own/checkpoint-3/chat_template.jinja"
t "the model's own is saved too" cmp "$T/base/chat_template.jinja" "$T/chat/checkpoint-3/chat_template.jinja"
# Samples that are kept are those of their template.
cached() { train "$1" "$T/chat.jsonl" --data-cache on --chat-template "$2"; }
t "a run whose samples are kept" cached kept "$T/base/chat_template.jinja"
t "stored samples give the same losses" same_losses text kept
t "another template" cached other "$T/own.jinja"
t "another template has samples of its own" same_losses own other
t "the first again" cached again "$T/base/chat_template.jinja"
t "the first template's samples are found again" same_losses text again
# Several turns: all of the assistant's, or the last.
rows '{"messages":[{"role":"user","content":"Say %s."},{"role":"assistant","content":"%s."},{"role":"user","content":"More?"},{"role":"assistant","content":"No."}]}' > "$T/long.jsonl"
t "several turns" train long "$T/long.jsonl"
t "the last of them" train last "$T/long.jsonl" --mask-history
t "loss on the last turn only differs" differ long last
# Rows that are no chats.
{ sed -n 1,2p "$T/chat.jsonl"; echo '{"messages":[{"content":"no role"}]}'; sed -n 3,4p "$T/chat.jsonl"; } > "$T/bad.jsonl"
expect 65 "a message without a role" train x "$T/bad.jsonl"
t "a bad chat is named by file and record" says 'bad.jsonl: record 3: field "messages": message 1 has no role'
t "a bad chat is skipped with --skip-bad-rows" train skip "$T/bad.jsonl" --skip-bad-rows 1
sed -n 1,4p "$T/chat.jsonl" > "$T/good.jsonl"
t "the good rows" train good "$T/good.jsonl"
t "the good rows alone give the same losses" same_losses good skip
expect 78 "a template for rows that are no chats" train x "$T/text.jsonl" --chat-template "$T/own.jinja"
t "--chat-template is refused for records that are not chats" says '--chat-template is given, and the records are no chats'
printf '{%% if %%}' > "$T/broken.jinja"
expect_says 65 "a broken template" 'line 1' train x "$T/chat.jsonl" --chat-template "$T/broken.jinja"
# Evaluation: the same rows, the same loss; the question is asked, the answer stands beside it.
score() { ckpt-eval -q --json --eval-file "$1" "${@:2}" "$T/chat/checkpoint-3" | grep -oE '"(loss|perplexity)": ?[0-9.e+-]+' | grep .; }
agree() { score "$1" > "$T/a" && score "$T/text.jsonl" --no-add-eos-token > "$T/b" && diff "$T/a" "$T/b"; }
t "messages are scored as their texts" agree "$T/chat.jsonl"
t "gpt's spelling is scored like the text" agree "$T/gpt.jsonl"
t "pairs are scored like the text" agree "$T/pair.jsonl"
expect 0 "chats are continued" ckpt-eval -q --json --eval-file "$T/chat.jsonl" --generate 2 --max-new-tokens 4 "$T/chat/checkpoint-3"
t "a continuation starts from the question" prints '# user\nDefine two.\n# assistant\n'
t "the answer is shown beside the continuation" prints '"two is a number."'
