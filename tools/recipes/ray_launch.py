#!/usr/bin/env python3
"""ray_launch.py [OPTION...] -- ckpt-train OPTION... - start ranks as Ray actors, print what they print, end as they end.

On the cluster of --address or RAY_ADDRESS (host and port; newer ones want RAY_AUTH_MODE=token too), else on one started on
this host, else on a fresh one here; in this folder and environment, with paths that mean the same on all nodes.  INT, TERM,
HUP, USR1 and USR2 reach every rank.  Status: the failed rank's; 75 when one or its node is lost, or none has room."""
import argparse, contextlib, os, signal, socket, subprocess, sys, threading, time
try:
    import ray
except ImportError as e:
    print(f"ray_launch.py: {e}: pip install ray", file=sys.stderr)
    sys.exit(69)

@ray.remote(max_concurrency=8)
class Rank:
    def place(self):                    # its node, that node's address, a port that is free there, the GPUs given to it
        with socket.create_server(("", 0)) as s:
            return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), s.getsockname()[1], ray.get_gpu_ids()
    def start(self, command, env):      # setpriv: the process ends with its actor
        self.p = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], env=env, cwd=env["PWD"], text=True,
                                  errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    def read(self, name): yield from (line for line in getattr(self.p, name))
    def wait(self): return self.p.wait()
    def signal(self, number): self.p.send_signal(signal.SIGTERM if number == signal.SIGINT else number)     # Ray blocks INT

def copy(rank, name):                   # a stream of a rank to the same one of this process
    with contextlib.suppress(ray.exceptions.RayError):          # status_of tells
        for line in rank.read.options(num_returns="streaming").remote(name):
            print(ray.get(line), end="", file=getattr(sys, name), flush=True)
def status_of(waiting):                 # 75 when it was killed or its node is gone, 70 when it crashed, as --nproc has it
    try: status = ray.get(waiting)
    except ray.exceptions.RayError: status = -signal.SIGKILL
    return status if status >= 0 else 75 if status in (-signal.SIGKILL, -signal.SIGTERM) else 70

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--ranks", type=int, default=1)
p.add_argument("--gpu", action="store_true", help="a GPU for each rank; without it they train on CPUs")
p.add_argument("--cpus", type=float, default=1, help="CPUs for each rank (1)")
p.add_argument("--place", default="PACK", choices=["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"], help="on few nodes, or many")
p.add_argument("--address", help="of a cluster; auto: one has to be there; local: a fresh one")
p.add_argument("--room", type=float, default=600, metavar="SECONDS", help="how long to wait for room in the cluster (600)")
p.add_argument("command", nargs="+")
a = p.parse_args()
ray.init(address=a.address, log_to_driver=False, logging_level="ERROR")
group = ray.util.placement_group([{"CPU": a.cpus, "GPU": int(a.gpu)}] * a.ranks, strategy=a.place)
if not group.wait(a.room):
    sys.exit(print(f"ray_launch: no room for {a.ranks} ranks within {a.room:g} s: {ray.available_resources()}", file=sys.stderr) or 75)
ranks = [Rank.options(num_cpus=a.cpus, num_gpus=int(a.gpu), placement_group=group, placement_group_bundle_index=i).remote()
         for i in range(a.ranks)]
places = ray.get([r.place.remote() for r in ranks])
for i, (node, *_) in enumerate(places):                 # as under Ray Train a rank sees the GPUs of all ranks of its node
    gpus, local = [str(g) for p in places if p[0] == node for g in p[3]], [p[0] for p in places[:i]].count(node)
    ray.get(ranks[i].start.remote(a.command, dict(os.environ, PWD=os.getcwd(), CUDA_VISIBLE_DEVICES=",".join(gpus), RANK=str(i),
            LOCAL_RANK=str(local), WORLD_SIZE=str(a.ranks), MASTER_ADDR=places[0][1], MASTER_PORT=str(places[0][2]))))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda n, _: [r.signal.remote(n) for r in ranks])
copies = [threading.Thread(target=copy, args=(r, name), daemon=True) for r in ranks for name in ("stdout", "stderr")]
for t in copies: t.start()
running, failed, until = [r.wait.remote() for r in ranks], [], float("inf")
while running and time.monotonic() < until:
    done, running = ray.wait(running, timeout=0.5)
    failed += [s for s in map(status_of, done) if s]
    if failed: until = min(until, time.monotonic() + 60)        # the others end by themselves, once they have met
for t in copies: t.join(5)
sys.exit(next((s for s in failed if s != 75), 75 if failed or running else 0))      # the others of a failed one say 75
