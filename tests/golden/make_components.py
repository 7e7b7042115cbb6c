#!/usr/bin/env python3
"""components.jsonl: what each component of a tokenizer.json does to every line of tokenizers/strings.jsonl.

Made with tokenizers 0.23.3: make_components.py > tokenizers/components.jsonl
A line: name; json (the whole tokenizer.json, "@t5" for the character map of tokenizers/t5); and sums, one behind
the other, of each string, or of each list of ids for a decoder.
A normalizer stands before a model of bytes, so that ids are the bytes of the normalised text and offsets where each
came from; a splitter before a model that knows no word, so that there is one token a word.
sum: FNV-1a 64, folded to 32 bits, over the numbers of ids and offsets (code points), each as 4 bytes LE; of a decoder over the text's bytes.
"""
import json, os
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
STRINGS = [json.loads(l) for l in open(HERE + "/tokenizers/strings.jsonl")]


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    return "%08x" % (h >> 32 ^ h & 0xFFFFFFFF)


def numbers(e):
    out = b""
    for i in e.ids:
        out += i.to_bytes(4, "little")
    for o in e.offsets:
        out += o[0].to_bytes(4, "little") + o[1].to_bytes(4, "little")
    return fnv(out)


def root(**parts):
    r = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": None}
    r.update(parts)
    return r


BYTES = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": True, "ignore_merges": False, "vocab": {"<0x%02X>" % i: i for i in range(256)}, "merges": []}
WORDS = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
CHARSMAP = json.load(open(HERE + "/tokenizers/t5/tokenizer.json"))["normalizer"]["normalizers"][0]["precompiled_charsmap"]


def seq(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def T(t, **kw):
    return dict(type=t, **kw)


def replace(content, **pattern):
    return T("Replace", pattern=pattern, content=content)


def bert(clean, chinese, accents, lower):
    return T("BertNormalizer", clean_text=clean, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower)


NORMS = {
    "nfc": T("NFC"), "nfd": T("NFD"), "nfkc": T("NFKC"), "nfkd": T("NFKD"), "lowercase": T("Lowercase"), "nmt": T("Nmt"),
    "strip_accents": T("StripAccents"), "nfd_strip_accents": seq("normalizers", T("NFD"), T("StripAccents")),
    "strip": T("Strip", strip_left=True, strip_right=True), "strip_left": T("Strip", strip_left=True, strip_right=False),
    "strip_right": T("Strip", strip_left=False, strip_right=True), "prepend": T("Prepend", prepend="\u2581x"),
    "replace_string": replace("__", String=" "), "replace_longer": replace("", String="ab"), "replace_regex": replace("\u2581", Regex=r"\s+"),
    "replace_empty": replace("-", Regex="x*"), "replace_digits": replace("#", Regex=r"\p{N}{2,3}"), "byte_level": T("ByteLevel"),
    "precompiled": T("Precompiled", precompiled_charsmap=CHARSMAP), "bert": bert(True, True, None, True), "bert_cased": bert(True, True, False, False),
    "bert_accents": bert(False, False, True, False), "bert_keep_accents": bert(True, False, False, True),
    "all": seq("normalizers", T("NFKC"), seq("normalizers", T("Strip", strip_left=True, strip_right=True), T("Lowercase")), T("Precompiled", precompiled_charsmap=CHARSMAP),
               replace("\u2581", String=" "), T("Prepend", prepend="\u2581"), T("NFD")),
}


def split(behavior, invert, **pattern):
    return T("Split", pattern=pattern, behavior=behavior, invert=invert)


def meta(scheme, do_split=True):
    return T("Metaspace", replacement="\u2581", prepend_scheme=scheme, split=do_split)


BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PRES = {
    "whitespace": T("Whitespace"), "whitespace_split": T("WhitespaceSplit"), "bert": T("BertPreTokenizer"), "scripts": T("UnicodeScripts"),
    "fixed1": T("FixedLength", length=1), "fixed3": T("FixedLength", length=3), "delimiter": T("CharDelimiterSplit", delimiter="o"),
    "digits": T("Digits", individual_digits=True), "digit_runs": T("Digits", individual_digits=False),
    "byte_level": T("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), "byte_level_whole": T("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False),
    "metaspace_always": meta("always"), "metaspace_first": meta("first"), "metaspace_never": meta("never"), "metaspace_whole": meta("always", False),
    "string": split("Isolated", False, String="ll"),
    "many": seq("pretokenizers", T("WhitespaceSplit"), meta("always"), T("Punctuation", behavior="MergedWithNext"), T("Digits", individual_digits=False),
                T("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), T("FixedLength", length=4)),
    "deepseek": seq("pretokenizers", split("Isolated", False, Regex=r"\p{N}{1,3}"), split("Isolated", False, Regex="[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                    split("Isolated", False, Regex="[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")),
}
for b in BEHAVIOURS:
    PRES["punctuation_" + b] = T("Punctuation", behavior=b)
    for inv in (False, True):
        PRES["split_%s_%d" % (b, inv)] = split(b, inv, Regex=r"\s|[.,]|o+")
        PRES["empty_%s_%d" % (b, inv)] = split(b, inv, Regex=r"l*")

TOKENS = ["a", "b", "##b", "##", "\u2581", "\u2581a", "\u2581\u2581", "<0x41>", "<0xC3>", "<0xA9>", "<0xFF>", "x</w>", "</w>", "</w>y</w>", ".", " .", " ' ", "n't", " n't",
          "do", " do not", "not", "'s", " 's", "\u0120a", "\u00c3", "\u00a9", "\u0120", "\u4e2d", "<pad>", "|", "a|", " ", "  a  ", "caf\u00e9", "<0x4g>", "<s>", "HE'D", " 're", ","]
DECODERS = {
    "none": None, "byte_level": T("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), "wordpiece": T("WordPiece", prefix="##", cleanup=False),
    "wordpiece_clean": T("WordPiece", prefix="##", cleanup=True), "metaspace": meta("always"), "metaspace_never": meta("never"), "bpe": T("BPEDecoder", suffix="</w>"),
    "fallback": T("ByteFallback"), "fuse": T("Fuse"), "ctc": T("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=True),
    "ctc_raw": T("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=False), "replace": replace("_", String="\u2581"), "replace_regex": replace("_", Regex="[a-c]+"),
    "strip": seq("decoders", T("Fuse"), T("Strip", content=" ", start=1, stop=0)),
    "llama": seq("decoders", replace(" ", String="\u2581"), T("ByteFallback"), T("Fuse"), T("Strip", content=" ", start=1, stop=0)),
    "nested": seq("decoders", seq("decoders", T("ByteFallback"), meta("first")), T("WordPiece", prefix="##", cleanup=True)),
}


def lists():
    state = 1
    for n in range(200):
        ids = []
        for _ in range(1 + n % 12):
            state = (state * 1664525 + 1013904223) % 2**32
            ids.append((state >> 8) % len(TOKENS))
        yield ids


def main():
    def out(kind, name, r, sums):
        line = json.dumps({"kind": kind, "name": name, "json": r, "sums": "".join(sums)}, ensure_ascii=True, separators=(",", ":"))
        print(line.replace(CHARSMAP, "@t5"))
    for name, norm in NORMS.items():
        r = root(normalizer=norm, model=BYTES)
        t = Tokenizer.from_str(json.dumps(r))
        out("text", "normalizer " + name, r, [numbers(t.encode(s)) for s in STRINGS])
    for name, pre in PRES.items():
        r = root(pre_tokenizer=pre, model=WORDS)
        t = Tokenizer.from_str(json.dumps(r))
        out("text", "pre_tokenizer " + name, r, [numbers(t.encode(s)) for s in STRINGS])
    for name, dec in DECODERS.items():
        r = root(decoder=dec, model={"type": "WordLevel", "vocab": {t: i for i, t in enumerate(TOKENS)}, "unk_token": "a"})
        t = Tokenizer.from_str(json.dumps(r))
        out("ids", "decoder " + name, r, [fnv(t.decode(ids).encode()) for ids in lists()])


main()
