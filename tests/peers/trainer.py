#!/usr/bin/env python3
"""The peers' half of check.sh: does HF Trainer, given the same data, seed and options, go through
the same losses?

usage: trainer.py MODEL TRAIN.jsonl METRICS.jsonl [--lora ADAPTER]

MODEL is the directory both start from, TRAIN.jsonl the instruction/output records, METRICS.jsonl
what ckpt-train wrote for the run that the constants below describe.  fp32, dropout 0, accumulation 1.
"""
import json
import sys

import torch
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer,
                          Trainer, TrainingArguments)

BATCH, STEPS, LENGTH, LR, WARMUP, DECAY, CLIP, SEED = 4, 100, 64, 5e-4, 10, 0.01, 1.0, 42

model_dir, train, metrics = sys.argv[1:4]
config = AutoConfig.from_pretrained(model_dir)
seq2seq = config.is_encoder_decoder
tokenizer = AutoTokenizer.from_pretrained(model_dir)
kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
model = kind.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager")
lora = " with LoRA" if sys.argv[4:5] == ["--lora"] else ""
if lora:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, sys.argv[5], is_trainable=True)


def encode(record):
    prompt, end = record["instruction"] + " ", [tokenizer.eos_token_id]
    if seq2seq:
        answer = tokenizer(record["output"], add_special_tokens=False).input_ids
        return {"input_ids": tokenizer(prompt).input_ids[:LENGTH - 1] + end,
                "labels": answer[:LENGTH - 1] + end}
    text = tokenizer(prompt + record["output"], return_offsets_mapping=True)
    labels = [-100 if stop <= len(prompt) else i
              for i, (start, stop) in zip(text.input_ids, text.offset_mapping)]
    return {"input_ids": (text.input_ids + end)[:LENGTH], "labels": (labels + end)[:LENGTH]}


def collate(rows):
    def fill(name, value):
        width = max(len(r[name]) for r in rows)
        return torch.tensor([r[name] + [value] * (width - len(r[name])) for r in rows])
    ids = fill("input_ids", -1)
    return {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(),
            "labels": fill("labels", -100)}


class Data(torch.utils.data.Dataset):
    def __init__(self, path):
        rows = [encode(json.loads(line)) for line in open(path, encoding="utf-8")]
        self.rows = [r for r in rows if any(x != -100 for x in r["labels"])]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


arguments = TrainingArguments(
    output_dir=sys.argv[3] + ".trainer", per_device_train_batch_size=BATCH, max_steps=STEPS,
    learning_rate=LR, lr_scheduler_type="linear", warmup_steps=WARMUP, weight_decay=DECAY,
    max_grad_norm=CLIP, seed=SEED, logging_steps=1, save_strategy="no", report_to=[],
    use_cpu=True, optim="adamw_torch", dataloader_num_workers=0, disable_tqdm=True)


class Told(Trainer):
    losses = []

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


trainer = Told(model=model, args=arguments, train_dataset=Data(train), data_collator=collate)
trainer.train()
theirs = {i + 1: loss for i, loss in enumerate(trainer.losses)}     # the log's are rounded
ours = {}
for line in open(metrics, encoding="utf-8"):
    event = json.loads(line)
    if "loss" in event and "step" in event:
        ours[event["step"]] = event["loss"]
steps = range(1, STEPS + 1)
if any(s not in theirs or s not in ours for s in steps):
    print(f"not ok both tell the loss of {STEPS} steps ({len(theirs)} there, {len(ours)} here)")
    sys.exit(1)
worst, at = max((abs(theirs[s] - ours[s]) / abs(theirs[s]), s) for s in steps)
good = worst <= 1e-4 and abs(theirs[1] - theirs[STEPS]) > 0.02
print("ok" if good else "not ok", f"HF Trainer goes through the same losses of {config.model_type}{lora}:",
      f"largest relative difference {worst:.1e} at step {at} of {STEPS},",
      f"loss {theirs[1]:.4f} to {theirs[STEPS]:.4f}", flush=True)
sys.exit(not good)
