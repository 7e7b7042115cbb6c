"""tests/golden/fields.tsv: the fields of the trainers' configuration classes, with their defaults: CLASS, FIELD, JSON.

Read from the classes' sources in the wheels of PyPI (nothing of them is run): pip download --no-deps -d WHEELS
transformers==5.24.0 transformers==4.44.2 trl==1.16.0 peft==0.21.2 (each alone).  Usage: make_fields.py WHEELS >fields.tsv"""
import ast, glob, json, sys, zipfile

CLASSES = [("transformers-5.24.0", "transformers/training_args.py", "TrainingArguments"),
           ("transformers-5.24.0", "transformers/training_args_seq2seq.py", "Seq2SeqTrainingArguments"), ("transformers-4.44.2", "transformers/training_args.py", "TrainingArguments"),
           ("trl-1.16.0", "trl/trainer/base_config.py", "_BaseConfig"), ("trl-1.16.0", "trl/trainer/sft_config.py", "SFTConfig"),
           ("trl-1.16.0", "trl/trainer/model_config.py", "ModelConfig"), ("trl-1.16.0", "trl/scripts/utils.py", "ScriptArguments"),
           ("trl-1.16.0", "trl/scripts/utils.py", "DatasetMixtureConfig"), ("peft-0.21.2", "peft/config.py", "PeftConfigMixin"),
           ("peft-0.21.2", "peft/config.py", "PeftConfig"), ("peft-0.21.2", "peft/tuners/lora/config.py", "LoraConfig")]
CALLS = {"list": [], "dict": {}, "LoraRuntimeConfig": {"ephemeral_gpu_offload": False}}
NAMES = {"default_optim": "adamw_torch"}            # with a torch of 2.8 or newer adamw_torch_fused

def value(node):
    if node is None: return None
    if isinstance(node, ast.Call):
        words = {k.arg: k.value for k in node.keywords}
        if "default" in words: return value(words["default"])
        if "default_factory" in words: return CALLS[ast.unparse(words["default_factory"])]
        return None                                 # required
    if isinstance(node, ast.Name): return NAMES[node.id]
    if isinstance(node, ast.IfExp): return value(node.body)
    return ast.literal_eval(node)

for wheel, path, name in CLASSES:
    tree = ast.parse(zipfile.ZipFile(glob.glob(f"{sys.argv[1]}/{wheel}-*.whl")[0]).read(path))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name).body
    for n in body:
        if isinstance(n, ast.AnnAssign): print(f"{wheel} {name}", n.target.id, json.dumps(value(n.value)), sep="\t")
