#!/usr/bin/env python3
"""Files that --scan must not call clean, and some that it must: only the standard library.

    python make_scan.py FOLDER          # tests/golden/malicious/scan was made so

Payloads are names with harmless arguments ("true", "/dev/null"); nothing here is ever loaded.
Writes expected.txt: for each file or folder the status of ckpt-inspect --scan, and a text that the
findings must have.
"""
import bz2, gzip, io, json, lzma, os, pickle, struct, sys, tarfile, zipfile, zlib

out = sys.argv[1]
expected = []


def u32(n): return struct.pack("<I", n)
def uni(s): b = s.encode(); return b"X" + u32(len(b)) + b
def glob(m, n): return b"c" + m.encode() + b"\n" + n.encode() + b"\n"
def short(s): b = s.encode(); return b"\x8c" + bytes([len(b)]) + b
def call(m, n, arg="true"): return b"\x80\x02" + glob(m, n) + b"(" + uni(arg) + b"tR."
EVIL = call("posix", "system")
OK = pickle.dumps({"a": [1, 2.5, "x"], "b": (None, True)}, 4)


def put(name, data, status=None, text=""):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    if status is not None:
        expected.append((status, name, text))


def folder(name, status, text=""):
    expected.append((status, name, text))


def tar(members, mode="w", links=()):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode=mode) as t:
        for name, data in members:
            i = tarfile.TarInfo(name)
            i.size = len(data)
            t.addfile(i, io.BytesIO(data))
        for name, to in links:
            i = tarfile.TarInfo(name)
            i.type, i.linkname = tarfile.SYMTYPE, to
            t.addfile(i)
    return b.getvalue()


def zipped(members, method=zipfile.ZIP_STORED, comment=b""):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, method)
        z.comment = comment
    return b.getvalue()


def npy(descr, shape, data):
    h = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    h += b" " * (-(len(h) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + data


def safetensors(header, data):
    h = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(h)) + h + data


def gguf(template):
    def s(t): b = t.encode(); return struct.pack("<Q", len(b)) + b
    kv = s("general.architecture") + u32(8) + s("llama") + s("tokenizer.chat_template") + u32(8) + s(template)
    b = b"GGUF" + u32(3) + struct.pack("<QQ", 0, 2) + kv
    return b + b"\0" * (-len(b) % 32)


SAFE = safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))

# -- gadgets: one pickle each ------------------------------------------------------------------
GADGETS = [
    ("pkgutil", "resolve_name"), ("torch.storage", "_load_from_bytes"), ("_io", "FileIO"),
    ("_io", "open_code"), ("io", "open"), ("operator", "attrgetter"), ("operator", "methodcaller"),
    ("_operator", "itemgetter"), ("functools", "partial"), ("functools", "reduce"),
    ("builtins", "eval"), ("builtins", "exec"), ("builtins", "compile"), ("builtins", "open"),
    ("builtins", "__import__"), ("builtins", "globals"), ("builtins", "vars"), ("builtins", "type"),
    ("__builtin__", "apply"), ("builtins", "getattr"), ("builtins", "breakpoint"),
    ("ctypes", "CDLL"), ("runpy", "_run_code"), ("pip", "main"), ("pip._internal", "main"),
    ("pdb", "run"), ("bdb", "Bdb"), ("timeit", "timeit"), ("cProfile", "runctx"), ("profile", "run"),
    ("torch._dynamo.guards", "GuardBuilder.get"), ("torch._inductor.codecache", "compile_file"),
    ("torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression"),
    ("torch.jit.unsupported_tensor_ops", "execWrapper"), ("torch.hub", "load"),
    ("torch.utils._config_module", "ConfigModule.load_config"), ("torch.utils.collect_env", "run"),
    ("torch.utils.bottleneck.__main__", "run_cprofile"), ("torch.serialization", "load"),
    ("numpy.testing._private.utils", "runstring"), ("numpy.f2py.crackfortran", "getlincoef"),
    ("webbrowser", "open"), ("asyncio", "create_subprocess_shell"), ("asyncio.unix_events",
    "_UnixSubprocessTransport._start"), ("multiprocessing", "Process"), ("multiprocessing.util",
    "spawnv_passfds"), ("subprocess", "Popen"), ("pty", "spawn"), ("shutil", "rmtree"),
    ("socket", "create_connection"), ("ssl", "get_server_certificate"), ("urllib.request", "urlopen"),
    ("requests.api", "get"), ("http.client", "HTTPSConnection"), ("aiohttp", "ClientSession"),
    ("importlib", "import_module"), ("zipimport", "zipimporter"), ("code",
    "InteractiveInterpreter.runcode"), ("codeop", "compile_command"), ("marshal", "loads"),
    ("pickle", "loads"), ("_pickle", "loads"), ("dill", "loads"), ("cloudpickle.cloudpickle",
    "_make_function"), ("joblib", "load"), ("types", "CodeType"), ("types", "FunctionType"),
    ("pydoc", "pipepager"), ("pydoc", "locate"), ("doctest", "debug_script"), ("trace", "Trace.run"),
    ("venv", "create"), ("ensurepip", "_run_pip"), ("idlelib.pyshell", "ModifiedInterpreter.runcode"),
    ("lib2to3.pgen2.grammar", "Grammar.loads"), ("distutils.file_util", "write_file"),
    ("logging", "FileHandler"), ("logging.config", "fileConfig"), ("imaplib", "IMAP4_stream"),
    ("uuid", "_get_command_stdout"), ("_osx_support", "_read_output"), ("_pyrepl.pager", "pipe_pager"),
    ("test.support.script_helper", "assert_python_ok"), ("sqlite3", "connect"), ("tempfile",
    "NamedTemporaryFile"), ("gc", "get_objects"), ("inspect", "getattr_static"), ("sys", "exit"),
    ("os", "system"), ("nt", "system"), ("posix", "execv"), ("commands", "getoutput"),
    ("pandas.io.pickle", "read_pickle"), ("numpy", "load"), ("torch", "load"), ("torch", "compile"),
    ("transformers.training_args", "os.system"), ("collections", "OrderedDict.__init__.__globals__"),
    ("torchao.utils", "importlib.import_module"), ("yaml", "unsafe_load"), ("sympy", "sympify"),
]
for i, (m, n) in enumerate(GADGETS):
    p = call(m, n) if i % 2 else b"\x80\x04" + short(m) + short(n) + b"\x93(" + short("true") + b"tR."
    put("gadgets/%02d-%s.%s.pkl" % (i, m, n.replace(".", "_")), p, 77, "%s.%s" % (m, n))

# -- tricks of pickles -------------------------------------------------------------------------
P4 = b"\x80\x04"
put("pickles/computed.pkl", P4 + b"]\x94" + short("system") + b"\x93" + b".", 77, "computed")
put("pickles/computed_reduce.pkl", P4 + glob("collections", "OrderedDict") + b")R" + short("system") + b"\x93.", 77, "computed")
put("pickles/memo.pkl", P4 + short("os") + b"\x940" + short("system") + b"\x940h\x00h\x01\x93(" + short("true") + b"tR.", 77, "os.system")
put("pickles/memo_far.pkl", P4 + short("os") + b"r\xff\xff\xff\x0f0" + b"j\xff\xff\xff\x0f" + short("system") + b"\x93(" + short("true") + b"tR.", 77, "os.system")
put("pickles/dup.pkl", P4 + short("os") + b"2\x930.", 77, "os.os")
put("pickles/inst.pkl", b"(S'true'\nios\nsystem\n.", 77, "os.system")
put("pickles/obj.pkl", b"(" + glob("os", "system") + b"S'true'\no.", 77, "os.system")
put("pickles/newobj.pkl", b"\x80\x02" + glob("subprocess", "Popen") + b"(" + uni("true") + b"t\x81.", 77, "subprocess.Popen")
put("pickles/newobj_ex.pkl", P4 + glob("subprocess", "Popen") + b"(" + uni("true") + b"t}\x92.", 77, "subprocess.Popen")
put("pickles/build_module.pkl", b"\x80\x02" + glob("mymodule", "settings") + b"}" + uni("x") + b"K\x01sb.", 77, "changes a module")
put("pickles/ext.pkl", b"\x80\x02\x82\x01)R.", 77, "extension registry")
put("pickles/escaped.pkl", b"S'o\\x73'\nS'sys\\x74em'\n\x93(S'true'\ntR.", 77, "os.system")
put("pickles/unicode_escape.pkl", b"V\\u006fs\nVsystem\n\x93(S'true'\ntR.", 77, "os.system")
put("pickles/protocol0.txt", b"cos\nsystem\n(S'true'\ntR.", 77, "os.system")
put("pickles/protocol0_no_stop.md", b"cos\nsystem\n(S'true'\ntRnever stops", 77, "os.system")
put("pickles/unknown_called.txt", b"cmymodule\nrun\n(S'true'\ntR.", 1, "mymodule.run")
put("pickles/second.pkl", OK + EVIL, 77, "posix.system")
put("pickles/seventh.pkl", OK * 6 + EVIL, 77, "posix.system")
put("pickles/trailing.pkl", OK + b"\x01\x02\x03rest", 65, "bytes after the pickle")
put("pickles/trailing_evil.pkl", OK + b"\0\0\0\0junk" + EVIL, 77, "posix.system")
put("pickles/prepended.dat1", b"\x01\x02\x03\x04some header" + EVIL, 77, "posix.system")
put("pickles/prepended0.dat1", b"\x01\x02\x03\x04some header" + b"cos\nsystem\n(S'true'\ntR.", 77, "os.system")
put("pickles/nested.pkl", P4 + b"C" + bytes([len(EVIL)]) + EVIL + b".", 77, "posix.system")
put("pickles/nested_numpy.pkl", P4 + glob("numpy.core.multiarray", "scalar") + b"(C" + bytes([len(EVIL)]) + EVIL + b"tR.", 77, "posix.system")
put("pickles/bad_opcode.pkl", EVIL[:-1] + b"\xff", 77, "posix.system")
put("pickles/unknown_opcode.pkl", b"\x80\x02}\xff.", 65)
put("pickles/cut.pkl", OK[:-5], 65)
put("pickles/persistent.pkl", b"\x80\x02(" + uni("module") + uni("x") + b"tQ.", 1, "persistent id")
put("pickles/getattr_chain.pkl", b"\x80\x02" + glob("builtins", "getattr") + b"(" + glob("transformers.trainer_utils", "IntervalStrategy") + uni("__init__") + b"tR.", 77, "builtins.getattr")
put("pickles/getattr_kept.pkl", b"\x80\x02" + glob("builtins", "getattr") + b"q\x00(" + glob("transformers.trainer_utils", "IntervalStrategy") + uni("EPOCH") + b"tRh\x00.", 77, "builtins.getattr")
put("pickles/getattr_member.pkl", b"\x80\x02" + glob("builtins", "getattr") + b"(" + glob("transformers.trainer_utils", "IntervalStrategy") + uni("EPOCH") + b"tR.", 0)
put("pickles/call_of_call.pkl", b"\x80\x02" + glob("collections", "defaultdict") + b")R)R.", 77, "calls what a call gave")
put("pickles/ok.pkl", OK, 0)
put("pickles/ok_protocol0.pkl", pickle.dumps({"a": [1, 2.5, "x"]}, 0), 0)
put("pickles/model.ptau", EVIL, 77, "posix.system")
put("pickles/model.ckpt-0001", EVIL, 77, "posix.system")

# -- containers --------------------------------------------------------------------------------
TORCH = zipped([("m/data.pkl", EVIL), ("m/version", b"3\n")])
put("packed/a.tar", tar([("x/m.bin", EVIL)]), 77, "a.tar")
put("packed/a.tar.gz", tar([("inner/m.bin", TORCH)], "w:gz"), 77, '"path": "a.tar.gz!inner/m.bin!m/data.pkl"')
put("packed/a.tgz", tar([("m.bin", EVIL)], "w:gz"), 77)
put("packed/a.nemo", tar([("model_config.yaml", b"_target_: os.system\n"), ("w.ckpt", TORCH)]), 77, "posix.system")
put("packed/target.nemo", tar([("model_config.yaml", b"a:\n  _target_: subprocess.Popen\n")]), 77, "subprocess.Popen")
put("packed/m.pkl.gz", gzip.compress(EVIL, mtime=0), 77, "posix.system")
put("packed/m.pkl.bz2", bz2.compress(EVIL), 77, "posix.system")
put("packed/m.pkl.xz", lzma.compress(EVIL), 77, "posix.system")
put("packed/m.pkl.lzma", lzma.compress(EVIL, lzma.FORMAT_ALONE), 77, "posix.system")
put("packed/m.joblib", zlib.compress(EVIL), 77, "posix.system")
put("packed/old.joblib", b"ZF" + hex(len(EVIL)).encode().ljust(19) + zlib.compress(EVIL), 77, "posix.system")
put("packed/zip_in_zip.zip", zipped([("a/b.zip", zipped([("m.pkl", EVIL)], zipfile.ZIP_DEFLATED))]), 77, "b.zip!m.pkl")
put("packed/m.mar", zipped([("MAR-INF/MANIFEST.json", b"{}"), ("model.pt", TORCH)], zipfile.ZIP_DEFLATED), 77, "posix.system")
put("packed/handler.mar", zipped([("MAR-INF/MANIFEST.json", b"{}"), ("handler.py", b"import os\n")], zipfile.ZIP_DEFLATED), 1, "handler.py")
put("packed/m.npz", zipped([("a.npy", npy("|O", (1,), EVIL))], zipfile.ZIP_DEFLATED), 77, "posix.system")
put("packed/other_name.zip", zipped([("notes.txt", EVIL)]), 77, "posix.system")
b = zipped([("a.txt", b"hello\n"), ("m.pkl", EVIL)])
put("packed/leading.zip", b"\0" * 100 + b, 77, "posix.system")
put("packed/pickle_then_zip.bin", EVIL + zipped([("a.txt", b"hello\n")]), 77, "posix.system")
put("packed/encrypted.zip", (lambda z: z.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"))(zipped([("a.txt", b"hello\n")])), 65, "encrypted")
put("packed/two_names.zip", zipped([("a.txt", b"hello\n")]).replace(b"a.txt", b"b.txt", 1), 65, "another name")
put("packed/dotdot.tar", tar([("../../x.txt", b"hi\n")]), 77, "leads out")
put("packed/link.tar", tar([("a.txt", b"hi\n")], links=[("l", "../../etc/passwd")]), 77, "leads out")
put("packed/dotdot.zip", zipped([("../x.txt", b"hi\n")]), 77, "leads out")
put("packed/bomb.gz", gzip.compress(bytes(1 << 27), mtime=0)[:60000] and gzip.compress(gzip.compress(bytes(1 << 28), 9, mtime=0), mtime=0), 65)
put("packed/cut.tar.gz", tar([("m.bin", os.urandom(0) + bytes(4000))], "w:gz")[:-30], 65)
put("packed/cut.tar", tar([("m.txt", b"hello\n" * 300)])[:1000], 65)
put("packed/after_end.tar", tar([("a.txt", b"hi\n")]) + EVIL, 77, "posix.system")
put("packed/ok.tar.gz", tar([("a/config.json", b'{"model_type": "llama"}'), ("a/model.safetensors", SAFE)], "w:gz"), 0)
put("packed/ok.zip", zipped([("a/config.json", b"{}"), ("a/m.safetensors", SAFE)], zipfile.ZIP_DEFLATED), 0)
zstd = b"\x28\xb5\x2f\xfd" + b"\x20" + bytes([len(EVIL)]) + struct.pack("<I", len(EVIL) << 3 | 1)[:3] + EVIL
put("packed/m.pkl.zst", zstd, 77, "posix.system")
def _lz4(data):  # one uncompressed block; the header's checksum is of xxh32, here of these two bytes
    return b"\x04\x22\x4d\x18\x60\x40\x82" + u32(len(data) | 0x80000000) + data + u32(0)
put("packed/m.pkl.lz4", _lz4(EVIL), 77, "posix.system")

# -- numbers -----------------------------------------------------------------------------------
put("numbers/object.npy", npy("|O", (1,), EVIL), 77, "posix.system")
put("numbers/object_ok.npy", npy("|O", (1,), OK), 1, "array of objects")
put("numbers/structured.npy", npy([("a", "<f4"), ("b", "|O")], (1,), EVIL), 77, "posix.system")
put("numbers/second.npy", npy("<f4", (2,), bytes(8)) + npy("|O", (1,), EVIL), 77, "posix.system")
put("numbers/ok.npy", npy("<f4", (2, 3), bytes(24)), 0)
put("numbers/cut.npy", npy("<f4", (2, 3), bytes(20)), 65)
put("numbers/damaged.safetensors", SAFE[:-3], 65)
put("numbers/trailing.safetensors", SAFE + EVIL, 65)
put("numbers/not.safetensors", b"\xff" * 64, 65)
put("numbers/ok.safetensors", SAFE, 0)
put("numbers/empty.safetensors", b"", 65, "an empty file")
put("numbers/empty.bin", b"", 65, "an empty file")
put("numbers/ok.gguf", gguf("{{ messages[0]['content'] }}"), 0)
put("numbers/ssti.gguf", gguf("{{ ''.__class__.__mro__ }}"), 77, "tokenizer.chat_template")
put("numbers/cut.gguf", gguf("{{ x }}")[:40], 65)
put("numbers/unknown.bin1", bytes(range(256)) * 4, 65, "no known format")
put("numbers/lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", 65)
joblib = (b"\x80\x04" + short("joblib.numpy_pickle") + short("NumpyArrayWrapper") + b"\x93)\x81}(" +
          short("subclass") + short("numpy") + short("ndarray") + b"\x93" + short("shape") + b"K\x04\x85" +
          short("order") + short("C") + short("dtype") + short("numpy") + short("dtype") + b"\x93" + short("f8") +
          b"\x89\x88\x87R(K\x03" + short("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" + short("allow_mmap") + b"\x88" +
          short("numpy_array_alignment_bytes") + b"K\x10ub")
put("numbers/arrays.joblib", joblib + b"\x03\xff\xff\xff" + bytes(32) + b".", 0)
put("numbers/arrays_evil.joblib", b"\x80\x04]" + joblib[2:] + b"\x03\xff\xff\xff" + bytes(32) + b"a" + EVIL[2:-1] + b"a.", 77, "posix.system")
keras = {"class_name": "Functional", "config": {"layers": [{"class_name": "Lambda", "config": {"name": "bad", "function": {"class_name": "__lambda__", "config": {"code": "4wAA"}}}}]}}
put("numbers/m.keras", zipped([("metadata.json", b"{}"), ("config.json", json.dumps(keras).encode())], zipfile.ZIP_DEFLATED), 77, "class_name: Lambda, bad")
put("numbers/function.keras", zipped([("config.json", json.dumps({"module": "os", "class_name": "function", "config": "system"}).encode())]), 77, "module: os")
put("numbers/ok.keras", zipped([("config.json", json.dumps({"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}}).encode())]), 0)
put("numbers/m.h5", b"\x89HDF\r\n\x1a\n" + bytes(600) + json.dumps(keras).encode() + bytes(100), 77, "class_name: Lambda, bad")
put("numbers/ok.h5", b"\x89HDF\r\n\x1a\n" + bytes(600) + b'{"class_name": "Sequential", "config": []}' + bytes(100), 0)

# -- text --------------------------------------------------------------------------------------
put("text/remote/config.json", json.dumps({"auto_map": {"AutoModel": "modeling_x.X"}}))
put("text/remote/modeling_x.py", "class X: pass\n")
put("text/remote/sub/deep/er/m.bin", EVIL)
folder("text/remote", 77, "remote")
put("text/custom/config.json", json.dumps({"auto_map": {"AutoModel": "modeling_x.X"}}))
put("text/custom/modeling_x.py", "class X: pass\n")
folder("text/custom", 1, "modeling_x.py")
put("text/trust/config.json", json.dumps({"trust_remote_code": True}))
folder("text/trust", 1, "trust_remote_code")
put("text/adapter/adapter_config.json", json.dumps({"auto_mapping": {"base_model_class": "M", "parent_library": "evil_lib"}}))
folder("text/adapter", 1, "auto_mapping")
put("text/adapter_ok/adapter_config.json", json.dumps({"auto_mapping": {"base_model_class": "M", "parent_library": "transformers.models.llama.modeling_llama"}}))
folder("text/adapter_ok", 0)
put("text/st/modules.json", json.dumps([{"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"}]))
folder("text/st", 1, "custom_st.Transformer")
put("text/processor/preprocessor_config.json", json.dumps({"auto_map": {"AutoProcessor": "p.P"}}))
folder("text/processor", 1, "auto_map")
TEMPLATES = ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__.os }}",
             "{{ x|attr('\\x5f\\x5fclass\\x5f\\x5f') }}", "{{ self['__init__'] }}", "{{ lipsum }}", "{% set a = x | attr('y') %}"]
for i, t in enumerate(TEMPLATES):
    put("text/ssti%d/tokenizer_config.json" % i, json.dumps({"chat_template": t if i % 2 else [{"name": "default", "template": t}]}))
    folder("text/ssti%d" % i, 77, "chat_template")
put("text/jinja/chat_template.jinja", TEMPLATES[0], 77, "chat template")
put("text/jinja_ok/chat_template.jinja", "{%- for m in messages %}{{ m['content'] | trim }} __class__ {%- endfor %}", 0)
put("text/startup.pth", "import os; os.getpid()\n", 77, "path file")
put("text/paths.pth", "/usr/lib/x\nimport os\n", 77, "path file")
put("text/run.sh", "#!/bin/sh\ntrue\n", 1, "run.sh")
put("text/evil.yaml", "a: !!python/object/apply:os.system ['true']\n", 77, "!!python/object")
put("text/bad.json", "{", 65)
put("text/vocab.txt", "cos\nsystem\nthe\ncat\n(\n.\nR\n", 0)
put("text/vocab2.txt", "[PAD]\ncode\nexec\nI1\n.\n", 0)
put("text/README.md", "# model\n\n```python\nimport os\n```\n", 0)
put("text/lib.so", b"\x7fELF\x02\x01\x01" + bytes(100), 1, "a program or library")

with open(os.path.join(out, "expected.txt"), "w") as f:
    for status, name, text in expected:
        f.write("%d\t%s\t%s\n" % (status, name, text))
print(len(expected), "files and folders")
