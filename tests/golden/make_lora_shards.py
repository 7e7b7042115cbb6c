#!/usr/bin/env python3
"""What PEFT itself saves of the adapter in hf-trainer/lora_ds3_w2, a run of HF Trainer over DeepSpeed ZeRO-3.

Ran with: torch 2.15.0, transformers 5.23.0, peft 0.21.2.   python make_lora_shards.py   (in this directory)

hf-trainer/lora_ds3_w2/run is as Trainer left it; expected.safetensors is what zero_to_fp32.py makes of its shards, under the
wrapped model's names.  They are loaded into a PEFT model of the same base and saved: saved/adapter_model.safetensors.
"""
import os, shutil, tempfile
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
run, base = f"{here}/hf-trainer/lora_ds3_w2", f"{here}/hf-trainer/plain_w1/run/checkpoint-4"
config = LoraConfig.from_pretrained(f"{run}/run/checkpoint-4")
config.inference_mode = False
model = get_peft_model(LlamaForCausalLM.from_pretrained(base), config)
state = load_file(f"{run}/expected.safetensors")
assert not model.load_state_dict(state, strict=False).unexpected_keys
with tempfile.TemporaryDirectory() as out:
    model.save_pretrained(out)
    os.makedirs(f"{run}/saved", exist_ok=True)
    shutil.copy(f"{out}/adapter_model.safetensors", f"{run}/saved/adapter_model.safetensors")
    again = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(base), out)
assert all(torch.equal(v, state[k]) for k, v in again.state_dict().items() if "lora_" in k)
