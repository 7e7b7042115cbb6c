#!/usr/bin/env python3
"""reports.py RUN - TensorBoard's and W&B's own readers on a run that was resumed at step 3 of 6.

Prints `ok NAME` lines; status 1 when a reader sees other numbers than metrics.jsonl has.
"""
import glob
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np

run = sys.argv[1]
failed = False


def check(name, good, seen=""):
    global failed
    failed |= not good
    print(f"ok {name}" if good else f"not ok {name}: {seen}")


rows, kept = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"), encoding="utf-8")], []
for row in rows:                            # as the manual has it: a run's first row ends those before it
    if "start_step" in row:
        kept = [r for r in kept if r["step"] <= row["start_step"]] if row["continues"] else []
    else:
        kept.append(row)
losses = {r["step"]: r["loss"] for r in kept if "loss" in r}
assert sorted(losses) == [1, 2, 3, 4, 5, 6], losses

# -- TensorBoard: one folder, two files, each step once.
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

folders = glob.glob(os.path.join(run, "runs", "*"))
check("one folder of events", len(folders) == 1, folders)
ea = EventAccumulator(folders[0], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
ea.Reload()
seen = {e.step: e.value for e in ea.Scalars("train/loss")}
check("TensorBoard sees each loss once", len(ea.Scalars("train/loss")) == 6 and
      all(abs(seen[s] - losses[s]) < 1e-6 * losses[s] for s in losses), seen)
check("evaluations too", [e.step for e in ea.Scalars("eval/loss")] == [3, 6], ea.Scalars("eval/loss"))
names = [t for t in ea.Tags()["histograms"] if t.startswith("parameters/")]
check("histograms of all parameters", len(names) > 4 and all(t.replace("parameters", "gradients") in ea.Tags()["histograms"] for t in names), names)
bad = []
for tag in ea.Tags()["histograms"]:
    for h in (e.histogram_value for e in ea.Histograms(tag)):
        if sum(h.bucket) != h.num or len(h.bucket) != len(h.bucket_limit) or sorted(h.bucket_limit) != list(h.bucket_limit) or h.bucket_limit[-1] < h.max:
            bad.append(tag)
check("whose buckets hold all numbers", not bad, bad)
text = tensor_util.make_ndarray(ea.Tensors("args/text_summary")[-1].tensor_proto)
check("the settings as a text", json.loads(text[0])["max_steps"] == 6, text)

# -- W&B: each record parsed by wandb's protobufs; the framing by its DataStore where it has one.
from wandb.proto import wandb_internal_pb2 as pb


def records(path):
    try:
        from wandb.sdk.internal.datastore import DataStore
        store = DataStore()
        store.open_for_scan(path)
        yield from iter(store.scan_data, None)
        return
    except ImportError:                     # wandb 0.20 and later read files in Go
        pass
    data, at, whole = open(path, "rb").read(), 7, b""
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        crc, n, kind = struct.unpack("<IHB", data[at:at + 7])
        assert crc == zlib.crc32(data[at + 6:at + 7 + n]) and 1 <= kind <= 4, at
        whole += data[at + 7:at + 7 + n]
        at += 7 + n
        if kind in (1, 4):
            yield whole
            whole = b""


for number, path in enumerate(sorted(glob.glob(os.path.join(run, "wandb", "offline-run-*", "run-*.wandb")), key=os.path.getmtime)):
    history, seen, num = {}, {}, 0
    for data in records(path):
        r = pb.Record()
        r.ParseFromString(data)
        num += 1
        assert r.num == num, (r.num, num)
        kind = r.WhichOneof("record_type")
        seen[kind] = r
        if kind == "history":
            row = {(i.nested_key[0] if i.nested_key else i.key): json.loads(i.value_json) for i in r.history.item}
            if "train/loss" in row:
                history[row["train/global_step"]] = row["train/loss"]
            assert row["_step"] == r.history.step.num
            for h in (v for v in row.values() if isinstance(v, dict)):
                assert h["_type"] == "histogram" and len(h["bins"]) == len(h["values"]) + 1 and np.all(np.diff(h["bins"]) > 0)
    wanted = [1, 2, 3, 4, 5, 6] if number == 0 else [4, 5, 6]
    own = {r["step"]: r["loss"] for r in rows if "loss" in r} if number else None
    check(f"W&B run {number + 1} has its steps", sorted(history) == wanted, history)
    check("with their losses", own is None or history == {s: own[s] for s in wanted}, history)
    settings = {c.key: json.loads(c.value_json) for c in seen["run"].run.config.update}
    check("its name, project and settings", (seen["run"].run.display_name, seen["run"].run.project, list(seen["run"].run.tags)) ==
          ("a run", "peers", ["a", "b"]) and settings["max_steps"] == 6 and settings["model_type"], seen["run"])
    check("its end", "exit" in seen and seen["exit"].exit.exit_code == 0 and "files" in seen and "stats" in seen, list(seen))

# -- Artifacts: wandb makes the same of the same files.
import wandb

artifacts = []
for path in glob.glob(os.path.join(sys.argv[2], "wandb", "offline-run-*", "run-*.wandb")):
    for data in records(path):
        r = pb.Record()
        r.ParseFromString(data)
        if r.WhichOneof("record_type") == "artifact":
            artifacts.append(r.artifact)
check("checkpoints and the model are artifacts", [(a.name.split("-")[0], list(a.aliases)) for a in artifacts] == [
    ("checkpoint", ["latest", "checkpoint_global_step_2"]), ("checkpoint", ["latest", "checkpoint_global_step_4"]),
    ("model", ["latest", "final_model"])], artifacts)
for a in artifacts:
    own = wandb.Artifact(a.name, a.type)
    for e in a.manifest.contents:
        own.add_file(e.local_path, name=e.path)
    check(f"{a.name}'s digest is wandb's", own.digest == a.digest and a.digest_algorithm == own.digest_algorithm and
          len(a.client_id) == len(own._client_id) and {e.path: (e.digest, e.size) for e in own.manifest.entries.values()} ==
          {e.path: (e.digest, e.size) for e in a.manifest.contents}, (own.digest, a.digest))

# -- `wandb sync` itself, against a server on loopback that knows the few queries it sends.
got = []


class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        got.append((self.path, body))
        answer = {"data": {}}
        if "graphql" in self.path:
            query = json.loads(body)
            if "upsertBucket" in query["query"]:
                project = {"id": "p", "name": "peers", "entity": {"id": "e", "name": "one"}}
                answer = {"data": {"upsertBucket": {"inserted": True, "bucket": {
                    "id": "b", "name": query["variables"].get("name"), "displayName": "a run", "sweepName": None,
                    "project": project, "historyLineCount": 0}}}}
            elif "viewer" in query["query"].lower():
                answer = {"data": {"viewer": {"id": "v", "entity": "one", "flags": "{}", "username": "one", "teams": {"edges": []}}}}
            elif "createRunFiles" in query["query"]:
                answer = {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": [
                    {"name": f, "uploadUrl": f"http://127.0.0.1:{port}/up/{f}"} for f in query["variables"]["files"]]}}}
        self.answer(answer)

    def do_PUT(self):
        got.append((self.path, self.rfile.read(int(self.headers.get("content-length") or 0))))
        self.answer({})

    def do_GET(self):
        self.answer({})

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
port = server.server_address[1]
threading.Thread(target=server.serve_forever, daemon=True).start()
folder = os.path.dirname(min(glob.glob(os.path.join(run, "wandb", "offline-run-*", "run-*.wandb")), key=os.path.getmtime))
env = dict(os.environ, WANDB_BASE_URL=f"http://127.0.0.1:{port}", WANDB_API_KEY="0" * 40, HOME=run)
done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "wandb"), "sync", folder], env=env, cwd=run, capture_output=True, text=True,
                      timeout=120, check=False)
check("wandb sync takes the run", done.returncode == 0 and "rror" not in done.stdout + done.stderr, done.stdout + done.stderr)
lines = [json.loads(c) for path, body in got if path.endswith("/file_stream")
         for c in json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])]
sent = {r["train/global_step"]: r["train/loss"] for r in lines if "train/loss" in r}
check("and sends its losses", sorted(sent) == [1, 2, 3, 4, 5, 6], sent)
check("and files", {"/up/config.yaml", "/up/wandb-metadata.json", "/up/wandb-summary.json"} <= {path for path, _ in got}, [p for p, _ in got])
sys.exit(failed)
