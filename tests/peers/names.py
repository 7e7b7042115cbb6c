"""names.py CKPT-TRAIN RECIPES DEEPSPEED - files of TrainingArguments and ds_configs mean here what they mean to transformers.

Every file of RECIPES is read by transformers' own parser and by ckpt-train --print-config, and the values are compared; every
ds_config of DEEPSPEED is filled by transformers' HfTrainerDeepSpeedConfig for the same arguments, and compared."""
import dataclasses, glob, json, os, re, subprocess, sys, types, yaml
from transformers import HfArgumentParser, TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

tool, recipes, deepspeed = sys.argv[1:]
bad = 0
def say(ok, name, text=""):
    global bad
    bad += not ok
    print("ok" if ok else "not ok", name, text)
def ours(*args):
    p = subprocess.run([tool, *args, "--print-config"], capture_output=True, text=True)
    return yaml.safe_load(re.sub(r"(?m)^# (?=\w+: )", "", p.stdout)) if p.returncode == 0 else p.stderr.strip()
def same(a, b):
    try: return float(a) == float(b)
    except (TypeError, ValueError): return str(a).lower() == str(b).lower()

SAME = """output_dir per_device_train_batch_size per_device_eval_batch_size num_train_epochs learning_rate weight_decay adam_beta1 adam_beta2
adam_epsilon max_grad_norm gradient_accumulation_steps seed bf16 fp16 gradient_checkpointing save_steps dataloader_drop_last ddp_timeout
lr_scheduler_type train_sampling_strategy""".split()
class OnCpu(TrainingArguments):
    device = n_gpu = property(lambda self: 0)
for path in sorted(glob.glob(f"{recipes}/*.json") + glob.glob(f"{recipes}/*.yaml")):
    raw = yaml.safe_load(open(path))
    logs = raw.get("logging_steps")
    known = {f.name for f in dataclasses.fields(TrainingArguments)}
    args = {k: v for k, v in raw.items() if k in known and k not in ("tf32", "fsdp", "fsdp_config")}
    a = HfArgumentParser(TrainingArguments).parse_dict(dict(args, use_cpu=True))[0]
    o, name = ours("--config", path), os.path.basename(path)
    if isinstance(o, str): say(False, name, o); continue
    wrong = [f"{k}: {getattr(a, k)} there, {o[k]} here" for k in SAME if k != "train_sampling_strategy" or "group_by_length" not in raw
             if not same(getattr(getattr(a, k), "value", getattr(a, k)), o[k])]
    total = 1000                        # what warmup comes to
    warm = o["warmup_steps"] or -(-o["warmup_ratio"] * total // 1)
    if "warmup_ratio" in raw and "warmup_ratio" not in known: a.warmup_steps = raw["warmup_ratio"]      # a field of 4.x
    if a.get_warmup_steps(total) != warm: wrong.append(f"warmup: {a.get_warmup_steps(total)} there, {warm} here")
    if max(a.max_steps, 0) != o["max_steps"]: wrong.append("max_steps")
    if (a.lr_scheduler_kwargs or {}).get("min_lr", o["min_lr"]) != o["min_lr"] and "min_lr" in str(raw): wrong.append("min_lr")
    if (a.data_seed if a.data_seed is not None else -1) != o["data_seed"]: wrong.append("data_seed")
    if logs and logs != o["logging_steps"]: wrong.append("logging_steps")
    if str(getattr(a.optim, "value", a.optim)) != o["optim"] and "optim" in raw: wrong.append("optim")
    say(not wrong, name, "; ".join(wrong))

FLAGS = {"learning_rate": 3e-5, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "weight_decay": 0.01, "warmup_steps": 20,
         "max_grad_norm": 0.7, "adam_beta2": 0.95}
for path in sorted(glob.glob(f"{deepspeed}/*.json")):
    name, own = os.path.basename(path), json.load(open(path))
    def auto(*keys):                    # the options that a file leaves open
        v = own
        for k in keys: v = v.get(k, "auto") if isinstance(v, dict) else v
        return v == "auto"
    flags = dict(FLAGS)
    for k, at in {"learning_rate": ("optimizer", "params", "lr"), "weight_decay": ("optimizer", "params", "weight_decay"), "adam_beta2": ("optimizer", "params", "betas"),
                  "per_device_train_batch_size": ("train_micro_batch_size_per_gpu",), "gradient_accumulation_steps": ("gradient_accumulation_steps",),
                  "max_grad_norm": ("gradient_clipping",), "warmup_steps": ("scheduler", "params", "warmup_num_steps")}.items():
        if not auto(*at): del flags[k]
    if not auto("train_batch_size"): flags.pop("per_device_train_batch_size", None)
    fp16 = own.get("fp16", {}).get("enabled") is True
    words = [w for k, v in flags.items() for w in (f"--{k}", str(v))] + (["--fp16"] if fp16 else ["--bf16"])
    o = ours("--deepspeed", path, *words)
    if isinstance(o, str): say(False, name, o); continue
    a = TrainingArguments(output_dir="x", use_cpu=True, **dict({"learning_rate": o["learning_rate"], "weight_decay": o["weight_decay"], "adam_beta1": o["adam_beta1"],
        "adam_beta2": o["adam_beta2"], "adam_epsilon": o["adam_epsilon"], "max_grad_norm": o["max_grad_norm"], "warmup_steps": o["warmup_steps"],
        "per_device_train_batch_size": o["per_device_train_batch_size"], "gradient_accumulation_steps": o["gradient_accumulation_steps"]}))
    a.fp16, a.bf16 = o["fp16"], o["bf16"]
    ds = HfTrainerDeepSpeedConfig(path)
    try:
        ds.trainer_config_process(a, auto_find_batch_size=False)
        ds.trainer_config_finalize(a, types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=64)), o["total_num_steps"] or 500)
    except ValueError as e:
        if own.get("train_batch_size", "auto") == "auto": say(False, name, str(e)); continue
    c = ds.config
    p, z = c.get("optimizer", {}).get("params", {}), c.get("zero_optimization", {})
    s = c.get("scheduler", {}).get("params", {})
    pairs = [("stage", z.get("stage", 0), o["zero_stage"]), ("offload", z.get("offload_optimizer", {}).get("device", "none"), o["offload_optimizer"]),
             ("param", z.get("offload_param", {}).get("device", "none"), o["offload_param"]), ("clip", c.get("gradient_clipping", o["max_grad_norm"]), o["max_grad_norm"]),
             ("lr", p.get("lr", o["learning_rate"]), o["learning_rate"]), ("beta2", p.get("betas", [0, o["adam_beta2"]])[1], o["adam_beta2"]),
             ("decay", p.get("weight_decay", o["weight_decay"]), o["weight_decay"]), ("warmup", s.get("warmup_num_steps", o["warmup_steps"]), o["warmup_steps"]),
             ("scheduler", c.get("scheduler", {}).get("type", o["lr_scheduler_type"]), o["lr_scheduler_type"]),
             ("fp16", c.get("fp16", {}).get("enabled", o["fp16"]), o["fp16"]), ("bf16", c.get("bf16", {}).get("enabled", o["bf16"]), o["bf16"])]
    wrong = [f"{k}: {x} there, {y} here" for k, x, y in pairs if not same(x, y)]
    say(not wrong, name, "; ".join(wrong))
sys.exit(bad > 0)
