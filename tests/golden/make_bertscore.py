#!/usr/bin/env python3
"""BERTScore of a few rows by the encoder bert-a with a small tokenizer of letters and words.

Made with: bert-score 0.3.12, torch 2.15.0 CPU fp32, transformers 5.24.0.  Usage: make_bertscore.py [OUTDIR]
bertscore/tokenizer.json, tokenizer_config.json: the tokenizer.  bertscore.json: rows; per layer, without and with idf: the means of
P, R and F1 over rows; layer 216: of layer 2, texts cut to 16 tokens.
"""
import json, os, shutil, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "peers"))
out = sys.argv[1] if len(sys.argv) > 1 else here
work = tempfile.mkdtemp()
sys.argv = ["scores.py", work]
import scores
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

letters = "abcdefghijklmnopqrstuvwxyz0123456789"
vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(letters) + ["##" + c for c in letters] + list(".,;:!?'()[]-")
vocab += "the of to and in is it on at was for that with he she you not cat dog mat sat house water food ##ing ##ed ##er ##ly".split()
tok = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
tok.normalizer, tok.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                   special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                            pad_token="[PAD]", mask_token="[MASK]", model_max_length=40)
model = os.path.join(work, "model")
shutil.copytree(os.path.join(here, "models", "bert-a"), model)
fast.save_pretrained(model)
os.makedirs(os.path.join(out, "bertscore"), exist_ok=True)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copyfile(os.path.join(model, name), os.path.join(out, "bertscore", name))
rows = [["The cat sat on the mat.", ["A cat was on the mat.", "the dog"]], ["water", ["Food and water!"]], ["He was not in the house", ["she is at home"]],
        ["  to be, or not  ", ["that is it; be"]], ["x", ["x"]], ["", ["nothing"]], ["something", [""]], ["you you you", ["it is for you"]],
        ["a very long text " * 12, ["a long text"]], ["walking slowly", ["he walked with a cat", "walk slower"]]]
golden = {"rows": [{"prediction": c, "references": r} for c, r in rows], "of": []}
for layer in (1, 2, 3):
    for idf in (False, True):
        prf = scores.bertscore_of(model, [c for c, _ in rows], [r for _, r in rows], num_layers=layer, idf=idf)
        golden["of"].append({"layer": layer, "idf": idf, **{n: sum(x) / len(x) for n, x in zip("prf", prf)}})
# A tokenizer that takes fewer tokens than the model has positions.
fast.model_max_length = 16
fast.save_pretrained(model)
prf = scores.bertscore_of(model, [c for c, _ in rows], [r for _, r in rows], num_layers=2, idf=False)
golden["of"].append({"layer": 216, "idf": False, **{n: sum(x) / len(x) for n, x in zip("prf", prf)}})
json.dump(golden, open(os.path.join(out, "bertscore.json"), "w"), indent=0)
