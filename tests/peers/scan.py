#!/usr/bin/env python3
"""Verdicts of picklescan and fickling beside ours: no file that they call dangerous is clean here.

    python tests/peers/scan.py CKPT_INSPECT FOLDER...      (pip install picklescan fickling)

picklescan: a dangerous global; fickling: a call or an import that it calls unsafe (not every name
that it does not know, torch's own among them).  Status 1 when one is clean here.
"""
import io, logging, os, subprocess, sys, warnings

from fickling.analysis import Severity, check_safety
from fickling.fickle import StackedPickle
from picklescan.scanner import SafetyLevel, scan_file_path

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
KINDS = {"UnsafeImports", "BadCalls", "UnsafeImportsML"}
# Harmless, and why.
KNOWN = {
    "getattr_member.pkl": "getattr of an enumeration of transformers' for a member: Python 3.11.0",
    "sharded.pt": "getattr(ShardedTensor, 'ProcessGroupState'), as torch writes it",
    "arrays.joblib": "joblib's own wrapper, whose arrays are stepped over to the end",
    "vocab.txt": "a text that names os.system and is no pickle: loaders stop before any call",
}


def by_picklescan(path):
    try:
        r = scan_file_path(path)
    except Exception:
        return []
    return ["%s.%s" % (g.module, g.name) for g in r.globals if g.safety == SafetyLevel.Dangerous]


def by_fickling(path):
    try:
        with open(path, "rb") as f:
            stack = StackedPickle.load(io.BytesIO(f.read()), fail_on_decode_error=False)
        found = []
        for p in stack:
            found += [r.analysis_name for r in check_safety(p).results
                      if r.severity >= Severity.LIKELY_UNSAFE and r.analysis_name in KINDS]
        return found
    except Exception:
        return []


def main(tool, folders):
    files = sorted(os.path.join(d, f) for top in folders for d, _, fs in os.walk(top) for f in fs)
    bad = told = worse = 0
    for path in files:
        a, b = by_picklescan(path), by_fickling(path)
        ours = subprocess.run([tool, "-q", "--scan", path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode
        told += bool(a or b)
        worse += ours != 0 and not a and not b
        if (a or b) and ours != 77:
            print("%s: status %d, picklescan %s, fickling %s" % (path, ours, a[:3], b[:3]))
        bad += bool(a or b) and ours == 0 and os.path.basename(path) not in KNOWN
    print("%d files, %d dangerous by a peer, %d of these clean here, %d told here only"
          % (len(files), told, bad, worse))
    return bad != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
