"""Make scores.json: figures of text metrics by their reference packages.

rouge-score 0.1.2, nltk 3.9, sacrebleu 2.6, scikit-learn 1.7; SQuAD's rules as in evaluate-v1.1.py
and evaluate-v2.0.py.  Rows have one to three references; texts are random, of words that stemming,
tokenizers and case treat in many ways.
"""
import collections
import json
import random
import re
import string
import sys
import warnings

import sacrebleu
from nltk.stem import porter
from rouge_score import rouge_scorer
from sklearn import metrics as sk

warnings.filterwarnings("ignore")
random.seed(7)
WORDS = """the a an The An of was were flies dies dying skies relational conditional rational valency
hesitancy digitizer conformably radically differently vilely analogously vietnamization predication
operator feudalism decisiveness hopefulness callousness formality sensitivity sensibility triplicate
formative formalize electricity electrical hopeful goodness revival allowance inference airliner
gyroscopic adjustable defensible irritant replacement adjustment dependent adoption homologous
communism activate angularities effective bowdlerize probate rate cease controlling rolling falling
hissing fizzed filing failing agreed feed plastered bled motoring sing conflated troubled sized
hopping tanned happy sky enjoy enjoyment spied died geology apology fully carefully generally innings
proceed howe yyyy syzygy toy boy's it's 3.14 1,000 1990. 2-3 well-known (hi) "quoted" $5 50% a+b
x_y <skipped> &quot;z&quot; &amp;lt; e.g., U.S.A. café naïve Straße İstanbul 你好 世界 ２３ ٣,٤ “so” … – € ™
end. stop! why? comma, semi; colon: /slash/ @at #tag ~ ^ `tick` * [b] {c} | \\\\""".split()


def text(n):
    out = []
    for _ in range(n):
        out.append(random.choice(WORDS))
        out.append(random.choice([" ", " ", " ", " ", " ", "  ", "\n", "-\n", "\t", " "]))
    return "".join(out)


def vary(s):
    """A text that shares much with s."""
    words = re.split(r"(\s+)", s)
    for _ in range(len(words) // 4):
        words[random.randrange(len(words))] = random.choice(WORDS + [""])
    return "".join(words)


def plain(s):
    s = "".join(c for c in s.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def squad(a, b, v2):
    x, y = plain(a).split(), plain(b).split()
    same = sum((collections.Counter(x) & collections.Counter(y)).values())
    em = float(plain(a) == plain(b))
    if v2 and (not x or not y):
        return em, float(x == y)
    if same == 0:
        return em, 0.0
    p, r = same / len(x), same / len(y)
    return em, 2 * p * r / (p + r)


rows = []
for i in range(120):
    reference = text(random.randrange(0, 40) if i % 10 else 0)
    rows.append({"prediction": vary(reference) if i % 7 else text(random.randrange(9)),
                 "references": [reference] + [vary(reference) for _ in range(i % 3)]})
rows += [{"prediction": "The  cat.", "references": ["cat"]}, {"prediction": "", "references": [""]},
         {"prediction": ".5 x", "references": [" .5 x"]}, {"prediction": " .5 x ", "references": [".5 x"]},
         # Answers without a word beside others; a sigma at a word's end.
         {"prediction": "", "references": ["", "the cat"]}, {"prediction": "...", "references": ["cat", "the", "dog"]},
         {"prediction": "", "references": ["", "a"]}, {"prediction": "x", "references": ["", "-"]},
         {"prediction": "\u039f\u0394\u039f\u03a3 \u03a3\u0391\u03a3. \u03a3 \u0391\u03a3\u0391's \u0391\u03a3'\u0391",
          "references": ["\u03bf\u03b4\u03bf\u03c2 \u03c3\u03b1\u03c2 \u03c3 \u03b1\u03c3\u03b1s \u03b1\u03c3\u03b1"]},
         # Categories P and S of editions of Unicode after 8.
         {"prediction": "a\u2e52b c\U0001fae9d e\u1b4ef g\u2e43h i\u2ffcj", "references": ["a \u2e52 b c \U0001fae9 d e \u1b4e f g \u2e43 h i \u2ffc j"]}]

out = {"rows": rows, "each": {}, "corpus": {}}
for stems in (False, True):
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=stems)
    out["each"]["rouge_stem" if stems else "rouge"] = [
        [s[k].fmeasure for k in ("rouge1", "rouge2", "rougeL", "rougeLsum")]
        for s in (scorer.score_multi(r["references"], r["prediction"]) for r in rows)]
for v2 in (False, True):
    def answers(r):
        return [x for x in r["references"] if plain(x) or not v2] or [""]
    out["each"]["squad_v2" if v2 else "squad"] = [
        [100 * max(squad(r["prediction"], x, v2)[k] for x in answers(r)) for k in (0, 1)]
        for r in rows]
predictions = [r["prediction"] for r in rows]
most = max(len(r["references"]) for r in rows)
references = [[r["references"][k] if k < len(r["references"]) else None for r in rows]
              for k in range(most)]
for tok in ("13a", "intl", "char", "zh", "none"):
    m = sacrebleu.BLEU(tokenize=tok, force=True)
    name = "bleu" if tok == "13a" else "bleu_" + tok
    out["corpus"][name] = [m.corpus_score(predictions, references).score]
for name, words in (("chrf", 0), ("chrf++", 2)):
    m = sacrebleu.CHRF(word_order=words)
    out["corpus"][name] = [m.corpus_score(predictions, references).score]

labels = []
for i in range(6):
    names = ["yes", "no", "maybe", "never", "ja"][:2 + i % 4]
    true = [random.choice(names) for _ in range(50)]
    pred = [t if random.random() < 0.6 else random.choice(names + ["other"]) for t in true]
    if i == 5:
        true = pred = ["one"] * 9
    labels.append({"true": true, "pred": pred, "figures": [
        sk.accuracy_score(true, pred), sk.f1_score(true, pred, average="macro", zero_division=0),
        sk.f1_score(true, pred, average="micro"),
        sk.f1_score(true, pred, average="weighted", zero_division=0),
        sk.matthews_corrcoef(true, pred)]})
out["labels"] = labels
stemmer = porter.PorterStemmer()
known = sorted({w.lower() for w in WORDS if re.fullmatch("[a-z]{3,}", w.lower())})
out["stems"] = [[w, stemmer.stem(w)] for w in known]
json.dump(out, sys.stdout, indent=0)
print()
