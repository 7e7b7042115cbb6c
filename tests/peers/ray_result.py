"""ray_result.py TRIAL STEP LOSS - ray.train.Result.from_path and ray.tune's read what --output-layout ray wrote; see launchers.sh.

Ray Train's second version reads another file than its first and Ray Tune: the first is asked for by RAY_TRAIN_V2_ENABLED=0.
"""
import os, sys

import ray.train, ray.tune

trial, step, loss = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
for kind in (ray.train.Result, ray.tune.Result):
    r = kind.from_path(os.path.abspath(trial))
    assert r.error is None and r.metrics["step"] == step and r.metrics["done"] and abs(r.metrics["loss"] - loss) <= 1e-9, r.metrics
    assert len(r.metrics_dataframe) == 2
    with r.checkpoint.as_directory() as d:
        assert os.path.exists(f"{d}/model.safetensors") and os.path.basename(d) == r.metrics["checkpoint_dir_name"]
    assert [m["step"] for _, m in r.best_checkpoints] == [step // 2, step]
    assert r.get_best_checkpoint("loss", "min").path.startswith(os.path.abspath(trial))
