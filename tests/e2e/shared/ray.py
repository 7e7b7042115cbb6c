"""ray.py - what stands in for Ray where it is not installed: the calls that tools/recipes/ray_launch.py makes, and no others.

One node, this host, with RAY_CPUS CPUs (2) and RAY_GPUS GPUs (0); RAY_CLUSTER is the address of a cluster that is there.  An
actor is a process that is forked from the caller's, takes calls over a pipe, at most max_concurrency at once, and ends when
its caller has gone, as Ray's does; one that dies is a RayError of all its calls.  What is not here: other nodes, a scheduler,
an object store.  make check-peers takes the real one."""
import concurrent.futures, multiprocessing, os, queue, socket, threading, time
from types import SimpleNamespace

class RayError(Exception): pass
exceptions = SimpleNamespace(RayError=RayError)
fork, mine = multiprocessing.get_context("fork"), {}                 # mine: what this process is, in an actor
node, cpus, gpus = "0" * 56, float(os.environ.get("RAY_CPUS", "2")), int(os.environ.get("RAY_GPUS", "0"))

def init(address=None, log_to_driver=True, logging_level=None):
    address = address or os.environ.get("RAY_ADDRESS", "local")
    if address not in ("local", os.environ.get("RAY_CLUSTER")): raise ConnectionError(f"no cluster at {address}")
def get_runtime_context(): return SimpleNamespace(get_node_id=lambda: node)
def get_gpu_ids(): return mine["gpus"]
def available_resources(): return {"CPU": cpus, "GPU": float(gpus)}

class Group:
    def __init__(self, bundles, strategy): self.bundles, self.strategy = bundles, strategy
    def wait(self, seconds):
        fits = sum(b["CPU"] for b in self.bundles) <= cpus and sum(b["GPU"] for b in self.bundles) <= gpus
        if fits and (self.strategy != "STRICT_SPREAD" or len(self.bundles) == 1): return True
        time.sleep(seconds)
        return False
util = SimpleNamespace(get_node_ip_address=lambda: socket.gethostbyname("localhost"), placement_group=Group)

class Result:                           # of one call: a value, or with streaming one after another
    def __init__(self): self.items = queue.Queue()
    def __iter__(self):
        while True:
            kind, value = self.items.get()
            if kind == "end": return
            one = Result()
            one.items.put((kind, value))
            yield one
            if kind == "error": return
def get(results):
    if isinstance(results, list): return [get(r) for r in results]
    kind, value = results.items.get()
    if kind == "error": raise RayError(value)
    return value
def wait(results, timeout):
    until = time.monotonic() + timeout
    while all(r.items.empty() for r in results) and time.monotonic() < until: time.sleep(0.01)
    done = [r for r in results if not r.items.empty()][:1]
    return done, [r for r in results if r not in done]

def serve(kind, most, own, pipe, other):            # an actor's process
    other.close()
    mine.update(own)
    actor, lock, pool = kind(), threading.Lock(), concurrent.futures.ThreadPoolExecutor(most)
    def send(*what):
        with lock: pipe.send(what)
    def call(number, streaming, name, arguments):
        try:
            value = getattr(actor, name)(*arguments)
            for v in value if streaming else [value]: send(number, "value", v)
            send(number, "end", None)
        except BaseException as e: send(number, "error", repr(e))
    try:
        while True: pool.submit(call, *pipe.recv())
    except EOFError: os._exit(0)

class Actor:
    def __init__(self, kind, most, own):
        self._pipe, end = fork.Pipe()
        self._calls, self._lock, self._reader = {}, threading.Lock(), None
        self._process = fork.Process(target=serve, args=(kind, most, own, end, self._pipe), daemon=True)
        self._process.start()
        end.close()
    def __getattr__(self, name): return Method(self, name, False)
    def _call(self, name, streaming, arguments):
        with self._lock:
            if not self._reader:                     # not before: the next actor is forked
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
            number, result = len(self._calls), Result()
            self._calls[number] = result
            try: self._pipe.send((number, streaming, name, arguments))
            except OSError: result.items.put(("error", "the actor died"))
        return result
    def _read(self):
        try:
            while True:
                number, kind, value = self._pipe.recv()
                self._calls[number].items.put((kind, value))
        except (EOFError, OSError):
            for r in list(self._calls.values()): r.items.put(("error", "the actor died"))
class Method:
    def __init__(self, actor, name, streaming): self.actor, self.name, self.streaming = actor, name, streaming
    def options(self, num_returns): return Method(self.actor, self.name, num_returns == "streaming")
    def remote(self, *arguments): return self.actor._call(self.name, self.streaming, arguments)

def remote(max_concurrency):
    def of(kind):
        def options(num_cpus, num_gpus, placement_group, placement_group_bundle_index):
            first = sum(b["GPU"] for b in placement_group.bundles[:placement_group_bundle_index])
            own = {"gpus": list(range(first, first + num_gpus))}
            return SimpleNamespace(remote=lambda: Actor(kind, max_concurrency, own))
        return SimpleNamespace(options=options)
    return of
