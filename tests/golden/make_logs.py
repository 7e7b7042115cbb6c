#!/usr/bin/env python3
"""make_logs.py - TensorBoard event files and W&B offline runs for tests/golden/logs, with what
their own readers see in them.

Needs torch, tensorboard and wandb; wandb runs offline.  Last made with torch 2.15.0,
tensorboard 2.21.0 and wandb 0.31.0.
"""
import glob
import json
import math
import os
import shutil
import struct
import sys
import zlib

import numpy as np

out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/logs"
os.makedirs(out, exist_ok=True)


def number(v):
    v = float(v)
    return v if math.isfinite(v) else None


# --- TensorBoard: torch's writer, both spellings of a scalar, and values that are no scalars.
def tensorboard_files():
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util
    from torch.utils.tensorboard import SummaryWriter

    work = os.path.join(out, "work")
    w = SummaryWriter(work)
    for step in range(0, 50):
        w.add_scalar("train/loss", 3.0 * math.exp(-step / 20) + 0.01 * (step % 7), step)
        w.add_scalar("train/learning_rate", 5e-5 * (1 - step / 50), step)
        if step % 10 == 9:
            w.add_scalar("eval/loss", 2.0 - step / 50, step, new_style=True)
            w.add_scalar("eval/double", 1.0 / (step + 1), step, new_style=True, double_precision=True)
    w.add_scalar("odd", float("nan"), 1)
    w.add_scalar("odd", float("inf"), 2)
    w.add_scalar("odd", -1.5, 3)
    w.add_text("args/text_summary", "| key | value |\n|---|---|\n| lr | 5e-05 |", 0)
    w.add_histogram("weights", np.linspace(-1, 1, 100), 5)
    w.add_image("picture", np.zeros((3, 4, 4), dtype=np.uint8), 0)
    w.add_scalar("tag with é and 😀", 7, -3)
    w.close()
    path = glob.glob(work + "/events*")[0]
    shutil.copy(path, os.path.join(out, "events.out.tfevents.torch"))
    shutil.rmtree(work)

    # TensorBoard's own protobufs: tensors of every numeric dtype as scalars, many values an event.
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2 as t
    from tensorboard.summary.writer.record_writer import RecordWriter
    path = os.path.join(out, "events.out.tfevents.tensors")
    with open(path, "wb") as f:
        r = RecordWriter(f)
        r.write(event_pb2.Event(wall_time=1.7e9, file_version="brain.Event:2",
                                source_metadata=event_pb2.SourceMetadata(writer="make_logs")).SerializeToString())
        meta = summary_pb2.SummaryMetadata(
            plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="scalars"))
        kinds = {
            "f32": (t.DT_FLOAT, dict(float_val=[2.5])), "f64": (t.DT_DOUBLE, dict(double_val=[1 / 3])),
            "i32": (t.DT_INT32, dict(int_val=[-7])), "i64": (t.DT_INT64, dict(int64_val=[-(1 << 40)])),
            "u32": (t.DT_UINT32, dict(uint32_val=[4000000000])), "u64": (t.DT_UINT64, dict(uint64_val=[1 << 50])),
            "bool": (t.DT_BOOL, dict(bool_val=[True])), "half": (t.DT_HALF, dict(half_val=[0x3E00])),
            "bf16": (t.DT_BFLOAT16, dict(half_val=[0x4020])),
            "i8": (t.DT_INT8, dict(int_val=[-5])), "u8": (t.DT_UINT8, dict(int_val=[250])),
            "c_f32": (t.DT_FLOAT, dict(tensor_content=np.float32(0.1).tobytes())),
            "c_f64": (t.DT_DOUBLE, dict(tensor_content=np.float64(0.1).tobytes())),
            "c_i64": (t.DT_INT64, dict(tensor_content=np.int64(-9).tobytes())),
            "c_i16": (t.DT_INT16, dict(tensor_content=np.int16(-300).tobytes())),
            "c_half": (t.DT_HALF, dict(tensor_content=np.float16(1.5).tobytes())),
        }
        values = [summary_pb2.Summary.Value(tag=k, metadata=meta, tensor=tensor_pb2.TensorProto(
            dtype=d, tensor_shape=tensor_shape_pb2.TensorShapeProto(), **v)) for k, (d, v) in kinds.items()]
        r.write(event_pb2.Event(wall_time=1.7e9 + 1, step=3,
                                summary=summary_pb2.Summary(value=values)).SerializeToString())
        # Later ones of a tag come without metadata, as TensorFlow writes them.
        later = [summary_pb2.Summary.Value(tag="f32", tensor=tensor_pb2.TensorProto(
            dtype=t.DT_FLOAT, tensor_shape=tensor_shape_pb2.TensorShapeProto(), float_val=[4.25]))]
        r.write(event_pb2.Event(wall_time=1.7e9 + 2, step=1 << 40,
                                summary=summary_pb2.Summary(value=later)).SerializeToString())
        f.flush()

    for name in ("torch", "tensors"):
        path = os.path.join(out, "events.out.tfevents." + name)
        series = {}
        for e in EventFileLoader(path).Load():
            for v in e.summary.value:
                if v.tag in series or v.metadata.plugin_data.plugin_name == "scalars":
                    # What tensorboard's own reader does not know is what was put in.
                    given = {"u32": 4000000000, "u64": 1 << 50, "bf16": 2.5}
                    x = given[v.tag] if v.tag in given else tensor_util.make_ndarray(v.tensor).item()
                    series.setdefault(v.tag, []).append([e.step, e.wall_time, number(x)])
        with open(path + ".json", "w") as f:
            json.dump(series, f, ensure_ascii=False, indent=0)
            f.write("\n")


def leveldb_records(b):
    """wandb's reader is inside a Go program by now; the framing is short."""
    at, parts = 7, []
    while at < len(b):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        crc, size, kind = struct.unpack_from("<IHB", b, at)
        data = b[at + 7:at + 7 + size]
        assert zlib.crc32(bytes([kind]) + data) == crc
        parts.append(data)
        at += 7 + size
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


# --- W&B: an offline run, and records that take several blocks.
def wandb_files():
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DISABLE_GIT="true",
                      WANDB_DISABLE_CODE="true", WANDB_HOST="host", WANDB_USERNAME="user")
    import wandb

    work = os.path.abspath(os.path.join(out, "work"))
    os.makedirs(work)
    quiet = dict(x_disable_meta=True, x_disable_stats=True, disable_code=True, disable_git=True,
                 console="off", save_code=False, disable_job_creation=True, x_disable_machine_info=True)
    known = set(wandb.Settings.model_fields)
    settings = wandb.Settings(**{k: v for k, v in quiet.items() if k in known})

    def run(name, run_id, body):
        r = wandb.init(project="golden", id=run_id, name=name, dir=work, tags=["a", "b"], notes="notes é",
                       config={"learning_rate": 5e-5, "model": {"layers": 2, "name": "tiny"}}, settings=settings)
        body(r)
        r.finish()
        shutil.copy(glob.glob(f"{work}/wandb/offline-run-*-{run_id}/run-{run_id}.wandb")[0],
                    os.path.join(out, f"run-{run_id}.wandb"))

    def short(r):
        for step in range(40):
            row = {"train/loss": 3.0 * math.exp(-step / 20), "train/epoch": step / 10}
            if step % 10 == 9:
                row["eval"] = {"loss": 2.0 - step / 40, "accuracy": step / 40}
            r.log(row)
        r.log({"odd": float("nan")})
        r.log({"odd": float("inf"), "word": "text", "list": [1, 2], "flag": True})
        r.log({"hist": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 1.0, 2.0, 3.0]))})
        r.config.update({"late": [1, "two"]})
        r.summary["best/loss"] = 0.5

    def long(r):
        for step in range(5):
            r.log({"x": step, "text": "é" * (20000 if step == 1 else 3)}, step=10 * step)

    run("short one", "gold0001", short)
    run("long one", "gold0002", long)
    shutil.rmtree(work)

    from wandb.proto import wandb_internal_pb2
    for run_id in ("gold0001", "gold0002"):
        path = os.path.join(out, f"run-{run_id}.wandb")
        seen = {"series": {}, "summary": {}, "config": {}, "records": 0}
        for data in leveldb_records(open(path, "rb").read()):
            pb = wandb_internal_pb2.Record()
            pb.ParseFromString(data)
            seen["records"] += 1
            kind = pb.WhichOneof("record_type")
            if kind == "history":
                row = {}
                for i in pb.history.item:
                    row[".".join(i.nested_key) if i.nested_key else i.key] = json.loads(i.value_json)
                for k, v in row.items():
                    v = float(v) if v in ("NaN", "Infinity", "-Infinity") else v
                    if k not in ("_step", "_timestamp", "_runtime") and isinstance(v, (int, float)) \
                            and not isinstance(v, bool):
                        seen["series"].setdefault(k, []).append([row["_step"], row["_timestamp"], number(v)])
            elif kind == "summary":
                for i in pb.summary.update:
                    k = ".".join(i.nested_key) if i.nested_key else i.key
                    seen["summary"][k] = json.loads(i.value_json)
            elif kind in ("config", "run"):
                for i in (pb.config if kind == "config" else pb.run.config).update:
                    k = ".".join(i.nested_key) if i.nested_key else i.key
                    seen["config"][k] = json.loads(i.value_json)
        seen["config"].pop("_wandb", None)
        if run_id == "gold0002":
            seen["summary"].pop("text", None)
        with open(path + ".json", "w") as f:
            json.dump(seen, f, ensure_ascii=False, indent=0)
            f.write("\n")


tensorboard_files()
wandb_files()
