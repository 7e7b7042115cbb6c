#!/usr/bin/env python3
"""Tiny adapters of every kind that PEFT saves, each merged by PEFT itself.

Made with: peft 0.21.2, torch 2.15.0 (CPU fp32), transformers 5.23.0.  Usage: make_adapters.py OUTDIR [NAME ...]
OUT/NAME/base, adapter         as save_pretrained writes them; factors, copies and biases are random
OUT/NAME/second                two-adapters: the other one
OUT/NAME/merged.safetensors    merge_and_unload (two-adapters: of add_weighted_adapter "cat", 0.7 and -0.3): the tensors
                               that differ from base, by their names on disk
"""
import json, os, shutil, sys, tempfile, warnings
warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
transformers.logging.set_verbosity_error()
L = dict(vocab_size=60, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32)
T = dict(L, tie_word_embeddings=True)
MX = dict(vocab_size=50, hidden_size=12, intermediate_size=10, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=32)
Q3 = dict(vocab_size=50, hidden_size=12, intermediate_size=10, moe_intermediate_size=7, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=6, num_experts=4, num_experts_per_tok=2, max_position_embeddings=32)
OSS = dict(vocab_size=50, hidden_size=12, intermediate_size=10, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=6, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32, layer_types=["full_attention"])
O = dict(vocab_size=50, hidden_size=12, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=12)
G = dict(vocab_size=50, n_embd=12, n_layer=1, n_head=2, n_positions=32)
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
MODELS = {
    "qwen2-lora-bias": ("qwen2", L, 0, dict(r=2, lora_alpha=6, lora_bias=True, target_modules=["q_proj", "v_proj"])),
    "opt-bias-all": ("opt", O, 0, dict(r=2, lora_alpha=3, bias="all", target_modules=["q_proj", "fc1"])),
    "gpt2-dora": ("gpt2", G, 0, dict(r=2, lora_alpha=5, use_dora=True, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "llama-dora-embed": ("llama", L, 0, dict(r=2, lora_alpha=5, use_dora=True, target_modules=["embed_tokens", "k_proj"])),
    "qwen3moe-experts": ("qwen3_moe", Q3, 0, dict(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj"], target_parameters=EXPERTS, rank_pattern={"q_proj": 2})),
    "mixtral-gate": ("mixtral", MX, 0, dict(r=2, lora_alpha=4, target_modules=[], target_parameters=["mlp.gate.weight"], modules_to_save=["norm"])),
    "mixtral-saved": ("mixtral", MX, 0, dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["mlp"])),
    "gpt2-saved": ("gpt2", G, 0, dict(r=2, lora_alpha=4, target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["wte"], ensure_weight_tying=True)),
    "gptoss-experts": ("gpt_oss", OSS, 0, dict(r=2, lora_alpha=4, target_modules=["o_proj"], target_parameters=EXPERTS)),
    "llama-resized-lora": ("llama", L, 64, dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens", "lm_head"])),
    "llama-resized-save": ("llama", L, 64, dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "llama-resized-tied": ("llama", T, 63, dict(r=2, lora_alpha=4, target_modules=["q_proj"])),
    "llama-resized-tokens": ("llama", L, 64, dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[3, 61])),
    "llama-tied-tokens": ("llama", T, 0, dict(r=2, lora_alpha=4, target_modules=["k_proj"], trainable_token_indices=[11, 12, 13])),
    "llama-tied-save": ("llama", T, 0, dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "llama-tied-both": ("llama", T, 0, dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "q_proj"], ensure_weight_tying=True)),
    "llama-resized-tied-rows": ("llama", T, 64, dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[3, 61])),
    "llama-resized-tied-lora": ("llama", T, 64, dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens"])),
    "llama-tied-rows": ("llama", T, 0, dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [3, 9], "lm_head": [4, 9]})),
    "two-adapters": ("qwen2", T, 0, dict(r=2, lora_alpha=5, target_modules=["q_proj", "embed_tokens"])),
}
SECOND = dict(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "up_proj"])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Conv2d(3, 8, 3)
        self.b = torch.nn.Conv2d(8, 6, 1)
        self.c = torch.nn.Conv1d(6, 4, 5)
        self.attn = torch.nn.MultiheadAttention(8, 2)
        self.out = torch.nn.Linear(8, 5)


NETS = {
    "net-conv": dict(r=2, lora_alpha=5, target_modules=["a", "b", "c", "out"], lora_bias=True),
    "net-conv-dora": dict(r=2, lora_alpha=5, use_dora=True, target_modules=["a", "b", "c"]),
    "net-mha": dict(r=2, lora_alpha=5, target_modules=["attn"]),
}


def shake(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=g) * 0.1)
    return model


def save_adapter(model, config, seed, to):
    torch.manual_seed(seed)
    shake(get_peft_model(model, config), seed).save_pretrained(to)
    path = os.path.join(to, "adapter_config.json")
    saved = json.load(open(path))
    saved["base_model_name_or_path"] = "../base"
    json.dump(saved, open(path, "w"), indent=2, sort_keys=True)
    os.remove(os.path.join(to, "README.md"))


def save_changes(d, base, merged):
    changed = {k: v.clone() for k, v in merged.items() if k not in base or not torch.equal(v, base[k])}
    save_file(changed, os.path.join(d, "merged.safetensors"), {"format": "pt"})
    print(os.path.basename(d), len(changed), flush=True)


def make_model(d, family, config, resize, lora):
    def load():
        m = AutoModelForCausalLM.from_pretrained(f"{d}/base", dtype=torch.float32)
        if resize:
            m.resize_token_embeddings(resize, mean_resizing=False)
        return m
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config), dtype=torch.float32)
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.3)
    m.save_pretrained(f"{d}/base")
    base = load_file(f"{d}/base/model.safetensors")
    save_adapter(load(), LoraConfig(task_type="CAUSAL_LM", **lora), 5, f"{d}/adapter")
    pm = PeftModel.from_pretrained(load(), f"{d}/adapter")
    if os.path.basename(d) == "two-adapters":
        save_adapter(load(), LoraConfig(task_type="CAUSAL_LM", **SECOND), 6, f"{d}/second")
        pm.load_adapter(f"{d}/second", "second")
        pm.add_weighted_adapter(["default", "second"], [0.7, -0.3], "sum", combination_type="cat")
        pm.set_adapter("sum")
        merged = pm.merge_and_unload(adapter_names=["sum"])
        # The embedding is changed alone, so what was its head stays as it was.
        merged.lm_head.weight = torch.nn.Parameter(base["model.embed_tokens.weight"].clone())
        merged.config.tie_word_embeddings = False
    else:
        merged = pm.merge_and_unload()
    with tempfile.TemporaryDirectory() as t:
        merged.save_pretrained(t)
        state = load_file(f"{t}/model.safetensors")
    if os.path.basename(d) == "llama-tied-both":
        # merge_and_unload adds the one update once for each of the two names, and then computes something else than
        # the adapter did; half of it is what the adapter says.
        e = "model.embed_tokens.weight"
        state[e] = base[e] + (state[e] - base[e]) / 2
    a = load_file(f"{d}/adapter/adapter_model.safetensors")
    e, h = "model.embed_tokens", "base_model.model.lm_head"
    if os.path.basename(d) == "llama-resized-tied-lora":
        # Nor is the head changed, which merge_and_unload takes for the embedding.
        state["lm_head.weight"] = a[f"base_model.model.{e}.base_layer.weight"]
    if os.path.basename(d) == "llama-tied-rows":
        # Each has rows of its own.
        state[f"{e}.weight"] = base[f"{e}.weight"].clone()
        state["lm_head.weight"] = base[f"{e}.weight"].clone()
        state[f"{e}.weight"][[3, 9]] = a[f"base_model.model.{e}.token_adapter.trainable_tokens_delta"]
        state["lm_head.weight"][[4, 9]] = a[f"{h}.token_adapter.trainable_tokens_delta"]
    save_changes(d, base, state)


def make_net(d, lora):
    os.makedirs(f"{d}/base")
    torch.manual_seed(7)
    m = Net()
    base = {k: v.clone() for k, v in m.state_dict().items()}
    save_file(base, f"{d}/base/model.safetensors", {"format": "pt"})
    json.dump({"model_type": "net"}, open(f"{d}/base/config.json", "w"))
    save_adapter(m, LoraConfig(**lora), 5, f"{d}/adapter")
    m = Net()
    m.load_state_dict(base)
    save_changes(d, base, PeftModel.from_pretrained(m, f"{d}/adapter").merge_and_unload().state_dict())


for name in sys.argv[2:] or [*MODELS, *NETS]:
    where = os.path.join(sys.argv[1], name)
    shutil.rmtree(where, ignore_errors=True)
    make_net(where, NETS[name]) if name in NETS else make_model(where, *MODELS[name])
