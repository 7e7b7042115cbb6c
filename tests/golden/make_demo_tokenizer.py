#!/usr/bin/env python3
"""The demo's tokenizer: byte-level BPE in BLOOM's shape, trained on WordNet's glosses.

Made with Python 3.11, tokenizers 0.23.3, wordnet-base 3.0.  Usage, from the repository root:

    tools/recipes/demo/wordnet.sh /tmp/wn 200000      # more than there are: every synset
    tests/golden/make_demo_tokenizer.py /tmp/wn/train.jsonl tools/recipes/demo/tokenizer

Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json.  The same input gives the
same bytes.  Golden lines for the unit test: add a third argument, a JSONL to write to.
"""
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCAB = 4096
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]

rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
text = [f"{r['instruction']}\n{r['output']}" for r in rows]
out = sys.argv[2]

t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(BLOOM), behavior="isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
])
t.decoder = decoders.ByteLevel()
t.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=False)
t.train_from_iterator(text, trainers.BpeTrainer(
    vocab_size=VOCAB, special_tokens=[AddedToken(s, normalized=False, special=True) for s in SPECIAL],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
assert t.get_vocab_size() == VOCAB and [t.token_to_id(s) for s in SPECIAL] == [0, 1, 2, 3]
t.save(out + "/tokenizer.json", pretty=False)

names = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
for name, value in (
    ("special_tokens_map.json", names),
    ("tokenizer_config.json", dict(
        add_prefix_space=False, clean_up_tokenization_spaces=False, model_max_length=2048,
        padding_side="left", tokenizer_class="BloomTokenizerFast", **names)),
):
    with open(f"{out}/{name}", "w") as f:
        json.dump(value, f, indent=2, sort_keys=True)
        f.write("\n")

if len(sys.argv) > 3:
    with open(sys.argv[3], "w") as f:
        for s in text[:: len(text) // 50]:
            json.dump({"text": s, "ids": t.encode(s).ids}, f)
            f.write("\n")
