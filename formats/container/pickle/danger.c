/* pickle/danger - see pickle/danger.h. */
#include "formats/container/pickle/danger.h"

#include <stddef.h>
#include <string.h>

/* All names of a module and of the modules below it, or only those in names. */
struct row {
    const char *does;
    const char *modules;        /* separated by blanks, with one at both ends */
    const char *names;          /* likewise; NULL: all */
};

static const struct row rows[] = {
    {"runs programs",
     " os posix nt subprocess _posixsubprocess pty popen2 commands shutil pexpect ptyprocess sh "
     "plumbum invoke fabric paramiko execnet psutil docker asyncio multiprocessing concurrent "
     "billiard torch.multiprocessing torch.distributed.elastic torch.distributed.run "
     "torch.distributed.launch torch.distributed.rpc uuid _osx_support _aix_support _pyrepl "
     "ensurepip venv virtualenv pip setuptools distutils pkg_resources wheel numpy.distutils "
     "torch.utils.collect_env torch.utils.bottleneck posixpath ntpath platform win32api "
     "win32com _winapi msilib antigravity turtledemo ", NULL},
    {"runs code",
     " builtins __builtin__ __builtins__ compile eval exec code codeop runpy bdb pdb "
     "ipdb pudb timeit trace profile cProfile _lsprof doctest unittest test pydoc idlelib "
     "lib2to3 compileall py_compile IPython ipykernel jupyter_client rlcompleter numpy.f2py "
     "numpy.testing torch.testing torch.fx torch._dynamo torch._inductor torch._functorch "
     "torch._export torch.export torch.compile torch.compiler torch.jit torch.package torch.onnx "
     "numexpr sympy "
     "pandas.core.computation jinja2 mako numba cython pyximport execjs js2py "
     "Cython sqlalchemy.ext.serializer hydra tvm triton ", NULL},
    {"imports modules",
     " importlib _frozen_importlib _frozen_importlib_external _imp imp pkgutil zipimport "
     "modulefinder site sitecustomize usercustomize pyclbr torch.hub torch.utils.model_zoo "
     "torch.utils.cpp_extension torch.classes torch.ops ", NULL},
    {"reaches other objects by name",
     " operator _operator functools _functools inspect gc types sys _sys "
     "sysconfig _sitebuiltins tracemalloc faulthandler ast symtable dis opcode ", NULL},
    {"loads pickles",
     " pickle _pickle cPickle pickletools dill cloudpickle marshal shelve "
     "jsonpickle hickle klepto pathos joblib "
     "pandas.io.pickle torch.utils.data.datapipes torch.utils._config_module yaml ruamel ", NULL},
    {"loads native code",
     " ctypes _ctypes cffi _cffi_backend mmap numpy.ctypeslib _ctypes_test ", NULL},
    {"opens or writes files",
     " tempfile fileinput filecmp linecache glob zipfile tarfile zipapp bz2 lzma gzip dbm "
     "sqlite3 _sqlite3 logging syslog netrc mailbox difflib cgi cgitb posixshmem "
     "_posixshmem readline ", NULL},
    {"uses the network",
     " socket _socket ssl _ssl select selectors http httplib urllib urllib2 urllib3 requests "
     "aiohttp httpx smtplib smtpd imaplib poplib ftplib telnetlib nntplib socketserver xmlrpc "
     "xmlrpclib SimpleHTTPServer BaseHTTPServer wsgiref asyncore asynchat boto3 botocore "
     "huggingface_hub webbrowser tornado twisted grpc zmq websockets ", NULL},
    {"runs threads or handlers", " threading _thread dummy_threading signal _signal atexit sched "
     "queue ", NULL},
    {"opens or writes files", " io _io codecs pathlib pathlib._local ",
     " open open_code FileIO open_file fopen Path.open Path.write_text Path.write_bytes "
     "StreamReaderWriter "},
    {"loads pickles", " torch torch.serialization torch.storage torch._weights_only_unpickler "
     "torch.distributed torch.distributed.distributed_c10d torch.distributed.checkpoint "
     "numpy pandas skops sklearn.externals keras tensorflow transformers diffusers ",
     " load _load _legacy_load loads save read_pickle to_pickle fromfile _load_from_bytes "
     "load_from_bytes _unpickle_block _object_to_tensor _tensor_to_object memmap DataSource "
     "genfromtxt loadtxt savetxt read_array open_memmap compile eval query load_model "
     "from_pretrained pipeline "},
    {"runs code", " dataclasses types ", " make_dataclass _create_fn "},
};

/* Names with the same meaning in every module. */
static const char words[] =
    " system popen popen2 popen3 popen4 Popen exec execfile eval execv execve execl "
    "execvp spawn spawnl spawnv spawnve spawnvp startfile fork forkpty posix_spawn runstring "
    "run_code run_module run_path runcode runcommand runsource runctx runcall exec_command "
    "shell_exec import_module __import__ load_module exec_module resolve_name locate subimport "
    "urlopen urlretrieve download_url_to_file check_output check_call getoutput "
    "getstatusoutput execWrapper compile_file compile_command load_library LoadLibrary CDLL PyDLL "
    "WinDLL dlopen loads read_pickle unpickle unsafe_load FileIO open_code _load_from_bytes "
    "resolve_dotted_name attrgetter methodcaller getattr setattr delattr breakpoint input "
    "CodeType FunctionType evaluate_guards_expression debug_script basichandlers get_entity "
    "reduce_graph_module exec_ safe_eval literal_exec InteractiveInterpreter InteractiveConsole ";

/* Modules that others import: reached as an attribute of another module, they would bypass the
 * table. */
static const char reached[] =
    " os sys subprocess builtins posix nt importlib shutil socket ctypes pickle _pickle runpy pty "
    "pkgutil marshal ";

/* Whether the first n bytes of s are a word of the list. */
static bool has_word(const char *list, const char *s, size_t n)
{
    for (const char *at = list; n > 0 && (at = strstr(at, " ")) != NULL; at++)
        if (strncmp(at + 1, s, n) == 0 && at[1 + n] == ' ')
            return true;
    return false;
}

/* Whether the list contains the module, or one that it is below. */
static bool has_module(const char *list, const char *module)
{
    for (size_t n = strcspn(module, ".");; n += 1 + strcspn(module + n + 1, ".")) {
        if (has_word(list, module, n))
            return true;
        if (!module[n])
            return false;
    }
}

/* Judge a part of a name that gives access to something else: o.__globals__, training_args.os,
 * C.system. */
static const char *judge_part(const char *s, size_t n)
{
    if (n > 4 && strncmp(s, "__", 2) == 0 && strncmp(s + n - 2, "__", 2) == 0)
        return "reaches other objects by name";
    if (has_word(reached, s, n))
        return "reaches a module through another";
    return has_word(words, s, n) ? "runs code" : NULL;
}

const char *pickle_danger(const char *module, const char *name)
{
    size_t n = strcspn(name, ".");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (has_module(rows[i].modules, module) &&
            (!rows[i].names || has_word(rows[i].names, name, strlen(name)) ||
             has_word(rows[i].names, name, n)))
            return rows[i].does;
    for (const char *part = name; ; part += n + 1) {
        const char *does;

        n = strcspn(part, ".");
        does = judge_part(part, n);
        if (does || !part[n])
            return does;
    }
}

bool pickle_name_is_plain(const char *name)
{
    bool first = true;

    for (const char *s = name; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_';
        bool digit = *s >= '0' && *s <= '9';

        if (!letter && (first || !digit) && (first || *s != '.'))
            return false;
        first = *s == '.';
    }
    return *name && !first;
}
