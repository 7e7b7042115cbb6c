#!/usr/bin/env python3
"""Tiny models, and the GGUF files llama.cpp's own converter makes of them.

Ran with: llama.cpp of 2026-10 (as llama-cpp-python 0.3.36 carries it), transformers 5.23.0, torch 2.15.0.

    LLAMA_CPP=/path/to/llama.cpp python make_gguf_models.py     writes gguf/NAME and gguf/NAME.TYPE.gguf beside itself

llama     BF16, llama3 scaling of rope, tied; with tests/golden/tokenizers/llama3 (byte-level BPE): q8_0
mixtral   F32, experts apart: f32
gpt2      F32, Conv1D: f16
bloom     F32, fused query, key and value: f32
"""
import json, logging, os, shutil, sys
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [os.environ["LLAMA_CPP"] + "/gguf-py", os.environ["LLAMA_CPP"]]
import gguf, torch
from conversion import get_model_class
from conversion.base import ModelBase, ModelType, get_model_architecture
from transformers import (BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM)

logging.disable(logging.CRITICAL)
torch.manual_seed(3)
F = gguf.LlamaFileType
rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}
cases = [
    ("llama", "q8_0", F.MOSTLY_Q8_0, torch.bfloat16, LlamaForCausalLM(LlamaConfig(
        vocab_size=712, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rope_parameters=rope, tie_word_embeddings=True,
        bos_token_id=705, eos_token_id=[706, 707]))),
    ("mixtral", "f32", F.ALL_F32, torch.float32, MixtralForCausalLM(MixtralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, num_local_experts=3, num_experts_per_tok=2))),
    ("gpt2", "f16", F.MOSTLY_F16, torch.float32, GPT2LMHeadModel(GPT2Config(
        vocab_size=40, n_embd=24, n_layer=2, n_head=3, n_positions=32, n_ctx=32))),
    ("bloom", "f32", F.ALL_F32, torch.float32, BloomForCausalLM(BloomConfig(
        vocab_size=40, hidden_size=24, n_layer=2, n_head=3))),
]
for name, kind, ftype, dtype, model in cases:
    d, out = here / "gguf" / name, here / "gguf" / f"{name}.{kind}.gguf"
    shutil.rmtree(d, ignore_errors=True)
    for p in model.parameters():
        if p.dim() == 1:
            p.data += 0.1 * torch.randn_like(p)
    model.to(dtype).save_pretrained(d)
    cls = get_model_class(get_model_architecture(ModelBase.load_hparams(d, False), ModelType.TEXT))
    if name == "llama":
        shutil.copyfile(here / "tokenizers/llama3/tokenizer.json", d / "tokenizer.json")
        json.dump({"add_bos_token": False, "bos_token": "<|begin_of_text|>", "chat_template": "{{ messages }}",
                   "eos_token": {"__type": "AddedToken", "content": "<|end_of_text|>"},
                   "tokenizer_class": "PreTrainedTokenizerFast"}, open(d / "tokenizer_config.json", "w"))
        cls.get_vocab_base_pre = lambda self, tokenizer: "llama-bpe"   # it knows published vocabularies by their digest
        cls.set_vocab = cls._set_vocab_gpt2
    else:
        cls.set_vocab = cls._set_vocab_none
    cls(d, ftype, out, eager=True).write()
    for f in d.iterdir():
        f.chmod(0o644)
