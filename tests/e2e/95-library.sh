# The library as others meet it: installed into an empty folder, then used by its header, its
# manual and its examples, in C and in C++, as a shared library and as an archive.
. "$(dirname "$0")/lib.sh"
R=$T/root; U=$R/usr/local
make -s install DESTDIR="$R" MODE="$(basename "$B")" CUDA=$([ -e "$B/libckpt_cuda.so" ]; echo $((1 - $?))) >/dev/null 2>"$T/.err" ||
    { fail install "$T/.err"; exit 1; }
echo "ok install"
pc() { PKG_CONFIG_PATH=$U/lib/pkgconfig pkg-config --define-prefix "$@" ckpt; }
export LD_LIBRARY_PATH=$U/lib
DOC=$U/share/doc/ckpt DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
san=; case $(basename "$B") in asan) san=-fsanitize=address,undefined ;; esac

# Headers: those of ckpt.h and no more, each by itself in both languages.
closure() { gcc -M -I"$U/include/ckpt" "$U/include/ckpt/libckpt/ckpt.h" | grep -oE "$U/include/[^ ]+\.h" | sort -u; }
t "installs the headers that ckpt.h includes and no more" \
    diff <(closure) <(find "$U/include" -name '*.h' | sort)
alone() {
    printf '#include "%s"\nint something;\n' "$1" > "$T/alone.c"
    gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only $(pc --cflags) "$T/alone.c" &&
        g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ $(pc --cflags) "$T/alone.c"
}
for h in "$U"/include/ckpt/libckpt/*.h; do t "${h##*/} compiles alone, in C and C++" alone "libckpt/${h##*/}"; done

# Names: the headers declare, the map lists, the library and the archive export, and the manual
# explains the same functions.
declared() {
    gcc -I"$U/include/ckpt" -D_GNU_SOURCE -fsyntax-only -aux-info "$T/aux" -x c "$U/include/ckpt/libckpt/ckpt.h" &&
        sed -nE 's|^/\* [^ ]*/libckpt/[a-z_]+\.h:.* extern ([^(]*[ *])?(ckpt_[a-z0-9_]+) \(.*|\2|p' "$T/aux" | sort
}
declared > "$T/declared"
t "the headers declare ckpt_open" grep -qx ckpt_open "$T/declared"
same() { shift; diff "$T/declared" <("$@" | sort); }
t "the shared library exports them, all of version CKPT_0.1" \
    same is bash -c "nm -D --defined-only $U/lib/libckpt.so | sed -nE 's/^.* [A-Z] (.*)@@CKPT_0\.1\$/\1/p'"
t "and nothing else" bash -c "! nm -D --defined-only $U/lib/libckpt.so | grep -vE '@@CKPT_0\.1$| A CKPT_0\.1$| [A-Z] _'"
t "so does the archive" same is bash -c "nm -g --defined-only $U/lib/libckpt.a | sed -nE 's/^.* [A-Z] //p'"
t "the manual names them" same is bash -c "sed -nE 's/^\.It Fn (ckpt_[a-z0-9_]+).*/\1/p' man/libckpt.3"
environment() {
    { git grep -hoE '"(CKPT|HF|HUGGINGFACE|HUGGING_FACE|TRANSFORMERS|AWS|XDG|SSL|CURL)_[A-Z0-9_]+"' -- 'libckpt/*.c' 'formats/*.c'
      git grep -hoE 'getenv\("[A-Z_]+"\)' -- 'libckpt/*.c' 'formats/*.c'; } | grep -oE '[A-Z][A-Z0-9_]+' |
        sort -u | grep -vxE 'CKPT_FAULT' | while read -r v; do grep -qE "(Ev|,|^) ?(.* )?$v( |$)" man/libckpt.3 || echo "$v"; done
}
t "and the environment that is read" [ -z "$(environment)" ]

# Examples: as they are installed.  -Wextra has another mind about {0} in C++.
build() { "$@" $san $(pc --cflags) -o "$T/$P$L" "$T/$P.$L" $(pc --libs); }
for P in list convert average; do
    cp "$DOC/$P.c" "$T/$P.c"; cp "$DOC/$P.c" "$T/$P.cc"
    L=c;  t "$P compiles as C" build gcc -std=c11 -Wall -Wextra -Wpedantic -Werror
    L=cc; t "$P compiles as C++" build g++ -std=c++11 -Wall -Werror
done
t "the manual shows list" diff <(sed -n '/^#include/,$p' "$DOC/list.c") \
    <(awk '/^\.Bd -literal/ { on = 1; next } /^\.Ed/ { on = 0 } on' man/libckpt.3 | sed 's/\\e/\\/g')
for L in c cc; do
    expect 0 "list runs ($L)" "$T/list$L" "$DS"
    t "prints name, dtype, shape, value" grep -qE '^emb\.weight F32 \[31, 18\] -?[0-9]' "$T/.out"
    t "prints no value of another dtype" grep -qxF 'counter I64 [3]' "$T/.out"
    t "converts ($L)" "$T/convert$L" "$DS" "$T/$L.safetensors"
done
cp "$T/.out" "$T/shared.out"
want=$(ckpt-inspect --json "$DS" | sed -nE 's/^  "tensors": ([0-9]+),$/\1/p')
t "prints every tensor" [ "${want:-none}" = "$(wc -l < "$T/shared.out")" ]
"$T/listc" "$T/nothing" >"$T/.out" 2>"$T/.err"; t "tells its failure by status" [ $? = 66 ]
t "and by a sentence" says "list: $T/nothing: no such file or directory"
t "converts as ckpt-merge does" ckpt-merge -q --tied keep --dtype bf16 -o "$T/m.safetensors" "$DS"
expect 0 "the same tensors" ckpt-inspect --diff "$T/m.safetensors" "$T/c.safetensors"
"$T/convertc" "$DS" "$T/c.safetensors" >"$T/.out" 2>"$T/.err"; t "replaces nothing" [ $? = 73 ]
t "and says so" says "$T/c.safetensors: exists already"
"$T/convertc" "$G/malicious/pt/obj_system.pt" "$T/evil" >"$T/.out" 2>"$T/.err"; t "executes nothing" [ $? = 77 ]
t "and leaves nothing" [ ! -e "$T/evil" ]
t "averages" "$T/averagec" "$T/mean" "$T/c.safetensors" "$T/m.safetensors"
expect 0 "the mean of two that are the same" ckpt-inspect --diff "$T/mean" "$T/c.safetensors"
"$T/averagecc" "$T/mean2" "$T/c.safetensors" "$T/nothing" >"$T/.out" 2>"$T/.err"; t "or ends with the first failure" [ $? = 66 ]
t "and leaves nothing there" [ ! -e "$T/mean2" ]

# The archive beside others that have names of their own, such as libjq and libzip.
cat > "$T/others.c" <<'C'
int jv_get(void), zip_open(void), buf_put(void);
int jv_get(void) { return 1; }
int zip_open(void) { return 1; }
int buf_put(void) { return 1; }
C
t "links with the archive, whatever names the program has" bash -c "gcc -std=c11 -Wall -Werror $san $(pc --cflags) \
    -o $T/list-a $T/list.c $T/others.c $U/lib/libckpt.a $(pkg-config --libs $(pc --print-requires-private)) -lpthread -lm"
t "prints the same" bash -c "$T/list-a $DS | diff - $T/shared.out"

for page in man/*.[0-9]; do
    p=${page#man/}; t "$p is installed" cmp "$page" "$U/share/man/man${p##*.}/$p"
done
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "installed $tool runs" bash -c "[ \"\$($U/bin/$tool --version)\" = '$tool 0.1.0' ]"
done
hard() {
    readelf -hldW "$1" > "$T/.elf" && grep -q 'BIND_NOW\|NOW' "$T/.elf" && grep -q GNU_RELRO "$T/.elf" &&
        ! grep 'GNU_STACK.*RWE' "$T/.elf" && grep -q 'DYN (' "$T/.elf"
}
for f in "$U"/bin/*; do t "$(basename "$f") is hardened" hard "$f"; done
