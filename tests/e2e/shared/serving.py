"""serving.py SERVER[,SERVER] DIR [BASE] - what the loaders of vLLM and Text Generation Inference (tgi) want of a folder, as rules.

Without BASE the folder is a model, with it an adapter for the model BASE.  Prints what a server would refuse or, worse, leave
out without a word; status 1 when there is something.  The rules are told from the sources, none of which is here:

  vLLM  00b5ad07 (default_loader.py: files), 02143692 and later (lora/peft_helper.py: adapter_config.json),
        0306474e (lora/lora_model.py: adapter's file and names), and its models' own names of weights
  TGI   db931fcf (utils/hub.py: files, utils/weights.py: names, adapters/lora.py and utils/adapter.py: adapters)"""
import json, os, re, struct, sys

folder, base = sys.argv[2], (sys.argv + [None])[3]
server, found = "", []
def want(holds, text):
    if not holds: found.append(f"{server}: {folder}: {text}")
def load(name, where=folder):
    try:
        with open(os.path.join(where, name)) as f: return json.load(f)
    except OSError: return None
def header(name):                       # name -> (dtype, shape) of a .safetensors
    with open(os.path.join(folder, name), "rb") as f:
        return {k: (v["dtype"], v["shape"]) for k, v in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])).items() if k != "__metadata__"}

# Weights by model_type: those of the model, of a layer, of an expert, and the head unless it is tied.
linear = lambda names, bias=False: [f"{n}.{e}" for n in names.split() for e in (["weight", "bias"] if bias else ["weight"])]
norms = ["input_layernorm.weight", "post_attention_layernorm.weight"]
llama = ("model.", "embed_tokens.weight norm.weight", "layers",
         linear("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj") + norms, [])
weights = {
    "llama": llama, "mistral": llama,
    "qwen3": llama[:3] + (llama[3] + ["self_attn.q_norm.weight", "self_attn.k_norm.weight"], []),
    "phi3": llama[:3] + (linear("self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj") + norms, []),
    "mixtral": llama[:3] + (linear("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj block_sparse_moe.gate") + norms,
                            linear("block_sparse_moe.experts.{}.w1 block_sparse_moe.experts.{}.w2 block_sparse_moe.experts.{}.w3")),
    "bloom": ("transformer.", "word_embeddings.weight word_embeddings_layernorm.weight word_embeddings_layernorm.bias ln_f.weight ln_f.bias", "h",
              linear("input_layernorm self_attention.query_key_value self_attention.dense post_attention_layernorm mlp.dense_h_to_4h mlp.dense_4h_to_h", True), []),
    "opt": ("model.decoder.", "embed_tokens.weight embed_positions.weight final_layer_norm.weight final_layer_norm.bias", "layers",
            linear("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm fc1 fc2 final_layer_norm", True), []),
}
classes = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
           "mixtral": "MixtralForCausalLM", "bloom": "BloomForCausalLM", "opt": "OPTForCausalLM"}

def files(adapter):                     # those that the server opens
    own = sorted(f for f in os.listdir(folder) if f.endswith(".safetensors"))
    if server == "tgi":                 # every one of the folder, but for the trainer's by their names
        return [f for f in own if not re.search("arguments|args|training", f)]
    if adapter: return [f for f in own if f == "adapter_model.safetensors"]
    want(not any(f.startswith("consolidated") for f in own), "consolidated*.safetensors: taken for Mistral's own format")
    index = load("model.safetensors.index.json")
    if not index: return own            # every one of the folder
    named = set(index["weight_map"].values())
    want(named <= set(own), f"the index names files that are not here: {sorted(named - set(own))}")
    for f in named & set(own):
        want({k for k, v in index["weight_map"].items() if v == f} == set(header(f)), f"{f} has other weights than its index says")
    return sorted(named & set(own))

def model():
    config = load("config.json") or {}
    kind, types = config.get("model_type"), set()
    want(kind in weights, f"model_type {kind}")
    want(config.get("architectures") == [classes.get(kind)], f"architectures {config.get('architectures')}")
    want(config.get("torch_dtype", config.get("dtype")) in ("float32", "float16", "bfloat16"), "no dtype in config.json")
    opened, has = files(False), {}
    want(opened, "no .safetensors")
    for f in opened:
        for k, v in header(f).items():
            want(k not in has, f"{k} is in two files")      # TGI refuses, vLLM takes the last
            has[k] = v
            types.add(v[0])
    held = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}         # what vLLM's dtype auto goes by
    want({held.get(x) for x in types} == {config.get("torch_dtype", config.get("dtype"))}, f"weights of {types}, not as config.json says")
    prefix, top, layers, each, expert = weights.get(kind, llama)
    n, e = config.get("num_hidden_layers", config.get("n_layer")), config.get("num_local_experts", 0)
    names = {prefix + t for t in top.split()} | {f"{prefix}{layers}.{i}.{w}" for i in range(n) for w in each}
    names |= {f"{prefix}{layers}.{i}." + w.format(k) for i in range(n) for w in expert for k in range(e)}
    tied = config.get("tie_word_embeddings", kind in ("bloom", "opt"))
    if not tied: names.add("lm_head.weight")
    want(names <= set(has), f"missing: {sorted(names - set(has))[:3]}")
    more = set(has) - names - ({"lm_head.weight"} if tied else set())       # a tied head may be there, and is left out
    want(not more, f"not of a {kind}: {sorted(more)[:3]}")
    vocab = [has[k][1][0] for k in has if re.search(r"(embed_tokens|word_embeddings|lm_head)\.weight$", k)]
    want(set(vocab) == {config.get("vocab_size")}, f"{vocab} rows of the vocabulary, {config.get('vocab_size')} in config.json")
    t = load("tokenizer_config.json")
    want(t is None or os.path.exists(os.path.join(folder, "tokenizer.json")) or t.get("tokenizer_class"), "a tokenizer without tokenizer.json and class")

def adapter():
    config, of = load("adapter_config.json") or {}, load("config.json", base)
    for field in ("r", "lora_alpha", "target_modules", "peft_type", "base_model_name_or_path"): want(config.get(field), f"no {field}")
    want(config.get("peft_type") == "LORA", "peft_type")
    want(config.get("r", 0) in range(1, 513), f"r {config.get('r')}: --max-lora-rank goes to 512")
    for field in ("modules_to_save", "use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "layer_replication", "layers_to_transform"):
        want(not config.get(field), f"{field} {config.get(field)}")         # refused, or left out of the scale without a word
    want(config.get("bias", "none") == "none", f"bias {config.get('bias')}")
    opened = files(True)
    want(opened == ["adapter_model.safetensors"], f"files {opened}")
    kind = of["model_type"]
    modules = {w[:-len(".weight")] for w in weights[kind][3] if not re.search("norm|gate.weight$", w)}
    seen, ranks = {}, set()
    for name, (dtype, shape) in (header(opened[0]) if opened else {}).items():
        m = re.fullmatch(r"base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_(A|B)\.weight", name)
        want(m and m[2] in modules, f"{name} is no weight that is looked for")
        if not m: continue
        seen.setdefault(m[2], set()).add((int(m[1]), m[3]))
        ranks.add(shape[0] if m[3] == "A" else shape[1])
    want(seen, "no weights")
    want(ranks == {config.get("r")}, f"ranks {ranks}, r {config.get('r')}")
    for m, where in seen.items():       # TGI leaves a kind of module out unless every layer has it
        want(len(where) == 2 * of["num_hidden_layers"], f"{m} in {len(where)} of {2 * of['num_hidden_layers']} places")
    said = config.get("target_modules")
    want(isinstance(said, list) and {m.rsplit(".")[-1] for m in seen} <= set(said), f"target_modules {said}")

for server in sys.argv[1].split(","): adapter() if base else model()
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
