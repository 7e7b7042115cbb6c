#!/usr/bin/env python3
"""scores.py WORK - does ckpt-eval choose as lm-evaluation-harness does, and score as bert_score does?

Tiny models of random weights, with real tokenizers, answer random questions of the shapes of HellaSwag, ARC and MMLU; the tasks
are lm_eval's own, read from its files, with local rows.  ckpt-eval is found in PATH.
"""
import json, os, random, subprocess, sys

import torch
import transformers

work = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
golden = os.path.join(here, "..", "golden")
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(3)
rng = random.Random(5)
bad = 0
WORDS = ("the a of water Paris house runs quickly never 42 3.5 café naïve ÉTUDE über lantern, bicycle; because when? it's "
         "[title] [step] copper mining SQL O'Brien x ( ) antidisestablishmentarianism").split()


def tell(good, text):
    global bad
    bad += not good
    print("ok" if good else "not ok", text, flush=True)


def text(least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def hellaswag():
    return {"activity_label": text(1, 3), "ctx_a": text(3, 20), "ctx_b": text(0, 5), "ctx": "", "label": str(rng.randrange(4)),
            "endings": [" " * rng.randrange(2) + text(1, 9) + "." for _ in range(4)]}


def arc():
    n = rng.choice((3, 4, 5))
    keys = [chr(65 + i) for i in range(n)] if rng.random() < 0.7 else [str(i + 1) for i in range(n)]
    return {"id": "x", "question": text(3, 20) + "?", "answerKey": rng.choice(keys), "choices": {"text": [text(1, 6) for _ in keys], "label": keys}}


def mmlu():
    return {"question": " " * rng.randrange(2) + text(3, 20), "subject": "high_school_us_history", "answer": rng.randrange(4),
            "choices": [text(1, 5) for _ in range(4)]}


def save_rows(name, rows):
    path = os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    return path


def ckpt(*args):
    """Figures, and the predictions of all rows."""
    kept = os.path.join(work, "predictions.jsonl")
    got = subprocess.run(("ckpt-eval", "-q", "--json", "--predictions-out", kept, "--overwrite") + args, stdout=subprocess.PIPE, check=True)
    figures = {f["figure"]: f["value"] for f in json.loads(got.stdout)["figures"]}
    return figures, [json.loads(line) for line in open(kept, encoding="utf-8")]


def models():
    def make(name, tokenizer, bos, eos, config):
        d = os.path.join(work, name)
        tok = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(golden, "tokenizers", tokenizer, "tokenizer.json"),
                                                   bos_token=bos, eos_token=eos)
        config.vocab_size = len(tok)
        config.bos_token_id, config.eos_token_id, config.pad_token_id = tok.bos_token_id, tok.eos_token_id, tok.pad_token_id
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for p in model.parameters():
            p.data.normal_(0, 0.3)
        model.save_pretrained(d)
        tok.save_pretrained(d)
        return d

    yield make("llama", "llama3", "<|begin_of_text|>", "<|end_of_text|>", transformers.LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                                            intermediate_size=64, max_position_embeddings=512))
    yield make("gpt2", "gpt2", "<|endoftext|>", "<|endoftext|>", transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64))


def task_of(name, rows_file):
    import lm_eval.tasks, yaml
    from lm_eval.api.task import ConfigurableTask
    root = os.path.dirname(lm_eval.tasks.__file__)
    if name == "hellaswag":
        sys.path.insert(0, os.path.join(root, "hellaswag"))
        import utils
        config = {"process_docs": utils.process_docs}
        lines = open(os.path.join(root, "hellaswag/hellaswag.yaml")).read().replace("!function utils.process_docs", "null")
    elif name == "arc":
        config, lines = {}, open(os.path.join(root, "arc/arc_easy.yaml")).read()
    else:
        one = yaml.safe_load(open(os.path.join(root, "mmlu/default/mmlu_high_school_us_history.yaml")))
        config, lines = {"description": one["description"], "task": "mmlu"}, open(os.path.join(root, "mmlu/default/_default_template_yaml")).read()
    config = {**yaml.safe_load(lines), **config, "dataset_path": "json", "dataset_name": None,
              "dataset_kwargs": {"data_files": {"test": rows_file}}, "test_split": "test", "training_split": None,
              "validation_split": None, "fewshot_split": None, "num_fewshot": 0,
              "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")]}
    config = {k: v for k, v in config.items() if k not in ("tag", "metadata", "fewshot_config", "should_decontaminate", "doc_to_decontamination_query")}
    return ConfigurableTask(config=config)


def choices():
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    files = {name: save_rows(name + ".jsonl", [make() for _ in range(200)]) for name, make in (("hellaswag", hellaswag), ("arc", arc), ("mmlu", mmlu))}
    for d in models():
        lm = HFLM(pretrained=d, device="cpu", dtype="float32", batch_size=8)
        for name, path in files.items():
            task = task_of(name, path)
            out = lm_eval.evaluate(lm=lm, task_dict={name: task}, bootstrap_iters=0, log_samples=True)
            want = {k: out["results"][name][k + ",none"] for k in ("acc", "acc_norm")}
            got, rows = ckpt("-t", path, "--task", "multiple-choice", d)
            who = f"{name} by {os.path.basename(d)}"
            tell(all(abs(got[k] - want[k]) < 1e-9 for k in want), f"{who}: {want} in lm_eval, {got}")
            same = 0
            for s in out["samples"][name]:
                asked = s["arguments"]
                likely = [float(r[0][0]) for r in s["resps"]]
                row = rows[s["doc_id"]]
                chosen = asked[likely.index(max(likely))][1]
                same += row["prompt"] == asked[0][0].rstrip() and chosen.endswith(" " + row["prediction"])
            tell(same == len(rows), f"{who}: {same} of {len(rows)} prompts and choices are lm_eval's")


def bertscore_of(d, cands, refs, **kinds):
    """P, R and F1 of each row, by bert_score."""
    import types
    for name in ("matplotlib", "matplotlib.pyplot", "mpl_toolkits", "mpl_toolkits.axes_grid1"):     # for its plots alone
        sys.modules.setdefault(name, types.ModuleType(name)).make_axes_locatable = None
    import bert_score.score
    from bert_score import utils
    make = utils.get_tokenizer

    def get_tokenizer(*args, **kw):
        tok = make(*args, **kw)
        if not hasattr(tok, "build_inputs_with_special_tokens"):        # gone in transformers 5
            tok.build_inputs_with_special_tokens = lambda x: [tok.cls_token_id, *x, tok.sep_token_id]
        return tok

    module = sys.modules["bert_score.score"]
    module.get_tokenizer = get_tokenizer
    got = module.score(cands, refs, model_type=d, device="cpu", nthreads=0, **kinds)
    return [x.tolist() for x in got]


def encoder(d, kind, tokenizer_file):
    if kind == "bert":
        tok = transformers.BertTokenizerFast(tokenizer_file=tokenizer_file, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                             pad_token="[PAD]", model_max_length=128)
        config = transformers.BertConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96,
                                         max_position_embeddings=128, vocab_size=len(tok))
    else:
        # bert_score asks encode() for a blank before the first word; transformers 5 has that from the tokenizer alone.
        tok = transformers.RobertaTokenizerFast(tokenizer_file=tokenizer_file, model_max_length=126, add_prefix_space=True)
        config = transformers.RobertaConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96,
                                            max_position_embeddings=128, vocab_size=len(tok), pad_token_id=1)
    torch.manual_seed(11)
    model = transformers.AutoModel.from_config(config)
    model.save_pretrained(d)
    tok.save_pretrained(d)


def bertscores():
    rows = [{"prediction": text(1, 25), "references": [text(1, 25) for _ in range(rng.choice((1, 1, 2)))]} for _ in range(1000)]
    path = save_rows("pairs.jsonl", rows)
    base = save_rows("none", [])
    open(base, "w").write("LAYER,P,R,F\n0,0,0,0\n1,0,0,0\n2,0.2,0.3,0.25\n3,0.4,0.5,0.45\n")
    for kind in ("bert", "roberta"):
        d = os.path.join(work, "encoder-" + kind)
        encoder(d, kind, os.path.join(golden, "tokenizers", kind, "tokenizer.json"))
        for layer, idf, rescale in ((3, False, False), (2, True, False), (3, True, True)):
            want = bertscore_of(d, [r["prediction"] for r in rows], [r["references"] for r in rows], num_layers=layer, idf=idf,
                                **({"rescale_with_baseline": True, "baseline_path": base, "lang": "en"} if rescale else {}))
            args = ["--metric", "bertscore", "--bertscore-model", d, "--bertscore-layer", str(layer)]
            args += ["--bertscore-idf"] * idf + ["--bertscore-baseline", base] * rescale
            got = subprocess.run(["ckpt-eval", "-q", "--json", "--predictions", path, *args], stdout=subprocess.PIPE, check=True)
            got = {f["figure"]: f["value"] for f in json.loads(got.stdout)["figures"]}
            worst = max(abs(got["bertscore_" + n] - sum(x) / len(x)) for n, x in zip(("p", "r", "f1"), want))
            tell(worst < 1e-5, f"BERTScore by {kind}, layer {layer}, idf {idf}, rescaled {rescale}: {worst:.1e} from bert_score's")


if __name__ == "__main__":
    bertscores()
    choices()
    sys.exit(bad > 0)
