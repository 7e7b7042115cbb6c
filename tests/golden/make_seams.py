#!/usr/bin/env python3
"""Checkpoints with what is no weight among the weights.   python make_seams.py   (in this directory)

Ran with: torch 2.15.0.

seams/titan       DCP as torchtitan has it: a model, a train state with an io.BytesIO in it
seams/megatron    DCP as Megatron has it: rng_state beside the weights, under no key of its own
seams/slice.pt    one of two files of a model cut by tensor parallelism, with Megatron's arguments
"""
import argparse, io, os, shutil
import torch
import torch.distributed.checkpoint as dcp

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seams")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
torch.manual_seed(3)
losses = io.BytesIO()
torch.save([torch.tensor(2.5)], losses)
losses.seek(0)
weights = {"emb.weight": torch.randn(4, 3), "head.weight": torch.randn(3, 4)}
dcp.save({"model": weights, "train_state": {"step": torch.tensor(7), "global_avg_losses": losses}}, checkpoint_id=f"{out}/titan", no_dist=True)
dcp.save({**weights, "rng_state": torch.arange(16, dtype=torch.uint8)}, checkpoint_id=f"{out}/megatron", no_dist=True)
torch.save({"args": argparse.Namespace(tensor_model_parallel_size=2), "iteration": 5,
            "model": {"language_model.embedding.word_embeddings.weight": torch.randn(4, 3)}}, f"{out}/slice.pt")
