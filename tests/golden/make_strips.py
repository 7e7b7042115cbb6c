"""make_strips.py - tokenizers/files/strips: RoBERTa's tokenizer, whose post-processor trims offsets, with
added tokens that take blanks (lstrip, rstrip).  wanted.jsonl: ids and offsets in characters by tokenizers 0.23.

usage: make_strips.py tests/golden/tokenizers
"""
import json
import sys

from tokenizers import AddedToken, Tokenizer

ROOT = sys.argv[1]
TEXTS = ["a  <maskx> b", "a <maskx>", "  <maskx>", " <maskx>", "a  zz  b", "a\t\n <maskx>b", "zz  zz",
         "ä \u3000<maskx>ö", "\u00a0 zz \u2003x", "   zz", " zz ", "a<maskx>  zz", "  ", " a  b "]
t = Tokenizer.from_file(f"{ROOT}/roberta/tokenizer.json")
t.add_special_tokens([AddedToken("<maskx>", lstrip=True, special=True)])
t.add_tokens([AddedToken("zz", lstrip=True, rstrip=True)])
t.save(f"{ROOT}/files/strips/tokenizer.json")
with open(f"{ROOT}/files/strips/texts.jsonl", "w") as texts, open(f"{ROOT}/files/strips/wanted.jsonl", "w") as wanted:
    for text in TEXTS:
        e = t.encode(text)
        texts.write(json.dumps(text) + "\n")
        wanted.write(json.dumps({"ids": e.ids, "offsets": e.offsets}, separators=(",", ":")) + "\n")
