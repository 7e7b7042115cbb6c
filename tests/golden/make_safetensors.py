#!/usr/bin/env python3
"""Files of the reference writers that the tests of safetensors_out and hf_dir compare with.

Ran with: safetensors 0.8.0, torch 2.15.0, transformers 5.23.0.

    python make_safetensors.py            writes safetensors/ and hf/ beside itself

safetensors/dtypes   every dtype torch can save, zero-sized and 0-d tensors
safetensors/names    names that need escapes or are not ASCII
hf/sharded           a tiny tied Llama by save_pretrained, two shards
hf/bin               its weights as pytorch_model.bin shards with both tied names
"""
import json, os, shutil
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
st, hf = os.path.join(here, "safetensors"), os.path.join(here, "hf")
for d in (st, hf):
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)

torch.manual_seed(0)
kinds = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
         "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
         "float8_e8m0fnu"]
sd = {}
for i, k in enumerate(kinds):
    t = torch.arange(3 * (i % 4 + 1), dtype=torch.float32).reshape(3, -1)
    t = t % 2 if k == "bool" else t
    sd["w." + k] = t.to(getattr(torch, k))
    sd["a." + k] = torch.ones((), dtype=torch.float32).to(getattr(torch, k))
sd["empty"] = torch.zeros((0, 5), dtype=torch.bfloat16)
save_file(sd, os.path.join(st, "dtypes.safetensors"), metadata={"format": "pt"})

names = ["plain", "dots.and-dashes_1", "blank in it", "quote\"s", "back\\slash", "tab\there", "line\nend", "\x01\x1f\x7f",
         "h\u00e9", "\u4e2d\u6587", "\U0001f600", "", "../up", "z", "Z", "0"]
save_file({n: torch.full((2,), float(i)) for i, n in enumerate(names)}, os.path.join(st, "names.safetensors"),
          metadata={"format": "pt"})

config = LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True)
model = LlamaForCausalLM(config)
out = os.path.join(hf, "sharded")
model.save_pretrained(out, max_shard_size="12KB")
for extra in os.listdir(out):
    if extra.endswith(".md"):
        os.remove(os.path.join(out, extra))

out = os.path.join(hf, "bin")
os.makedirs(out)
sd = model.state_dict()
assert sd["lm_head.weight"].data_ptr() == sd["model.embed_tokens.weight"].data_ptr()
first = {k: v for k, v in sd.items() if "embed" in k or "lm_head" in k}
second = {k: v for k, v in sd.items() if k not in first}
index = {"metadata": {"total_size": float(sum(v.numel() * 4 for v in sd.values()))}, "weight_map": {}}
for i, part in enumerate((first, second), 1):
    name = f"pytorch_model-0000{i}-of-00002.bin"
    torch.save(part, os.path.join(out, name))
    index["weight_map"].update({k: name for k in part})
with open(os.path.join(out, "pytorch_model.bin.index.json"), "w") as f:
    json.dump(index, f, indent=2, sort_keys=True)
shutil.copy(os.path.join(hf, "sharded", "config.json"), out)
