# The program of libckpt(3), built by a stranger's means, against the installed library, and
# against the archive in the tree.
. "$(dirname "$0")/lib.sh"
make -s install PREFIX="$T/usr" MODE="$(basename "$B")" CUDA=$([ -e "$B/libckpt_cuda.so" ]; echo $((1 - $?))) >/dev/null 2>"$T/.err" || { fail install "$T/.err"; exit 1; }
echo "ok install"
# example N - the N-th program of the manual.
example() {
    awk -v n="$1" '/^\.Bd -literal/ { k++; in_it = 1; next } /^\.Ed/ { in_it = 0 } in_it && k == n' man/libckpt.3 |
        sed 's/\\en/\\n/g'
}
example 1 > "$T/list.c"; example 2 > "$T/convert.c"
export PKG_CONFIG_PATH=$T/usr/lib/pkgconfig LD_LIBRARY_PATH=$T/usr/lib
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
t "the program of the manual compiles" bash -c "gcc -Wall -Werror -o $T/list $T/list.c \$(pkg-config --cflags --libs ckpt)"
expect 0 "runs" "$T/list" "$DS"
t "prints name, dtype, shape, value" grep -qE '^emb\.weight F32 \[31, 18\] -?[0-9]' "$T/.out"
t "prints no value of another dtype" grep -qxF 'counter I64 [3]' "$T/.out"
cp "$T/.out" "$T/shared.out"
want=$(ckpt-inspect --json "$DS" | sed -nE 's/^  "tensors": ([0-9]+),$/\1/p')
t "prints every tensor" [ "${want:-none}" = "$(wc -l < "$T/shared.out")" ]
"$T/list" "$T/nothing" >"$T/.out" 2>"$T/.err"; t "tells its failure by status" [ $? = 1 ]
t "and by a sentence" says "$T/nothing: no such file or directory"
t "the second one too" bash -c "gcc -Wall -Wextra -Werror -o $T/convert $T/convert.c \$(pkg-config --cflags --libs ckpt)"
t "converts" "$T/convert" "$DS" "$T/c.safetensors"
t "as ckpt-merge does" ckpt-merge -q --tied keep --dtype bf16 -o "$T/m.safetensors" "$DS"
expect 0 "the same tensors" ckpt-inspect --diff "$T/m.safetensors" "$T/c.safetensors"
"$T/convert" "$DS" "$T/c.safetensors" >"$T/.out" 2>"$T/.err"; t "replaces nothing" [ $? = 1 ]
t "and says so" says "$T/c.safetensors: exists already"
"$T/convert" "$G/malicious/pt/obj_system.pt" "$T/evil" >"$T/.out" 2>"$T/.err"; t "executes nothing" [ $? = 1 ]
t "and leaves nothing" [ ! -e "$T/evil" ]
libs="jansson libarchive libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2"
san=; case $(basename "$B") in asan) san=-fsanitize=address,undefined ;; esac
t "compiles against the archive" bash -c "gcc -std=c11 -Wall -Wextra -Werror $san -I. \
    \$(pkg-config --cflags $libs) -o $T/list-a $T/list.c $B/libckpt.a \$(pkg-config --libs $libs) -lpthread -lm"
t "prints the same" bash -c "$T/list-a $DS | diff - $T/shared.out"
own_names() {
    nm -D --defined-only "$T/usr/lib/libckpt.so" > "$T/names" && grep -q ' ckpt_open$' "$T/names" &&
        ! grep -vE ' (ckpt_[a-z0-9_]+|A [A-Za-z_0-9.]+|[A-Z] _.*)$' "$T/names"
}
t "exports only its own names" own_names
# Every header a stranger gets compiles by itself.
alone() { gcc -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c $(pkg-config --cflags ckpt jansson) - <<<"#include \"$1\""; }
for h in $(cd "$T/usr/include/ckpt" && find . -name "*.h" | sort); do
    t "${h#./} compiles alone" alone "${h#./}"
done
for page in man/*.[0-9]; do
    p=${page#man/}; t "$p is installed" cmp "$page" "$T/usr/share/man/man${p##*.}/$p"
done
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "installed $tool runs" bash -c "[ \"\$($T/usr/bin/$tool --version)\" = '$tool 0.1.0' ]"
done
hard() {
    readelf -hldW "$1" > "$T/.elf" && grep -q 'BIND_NOW\|NOW' "$T/.elf" && grep -q GNU_RELRO "$T/.elf" &&
        ! grep 'GNU_STACK.*RWE' "$T/.elf" && grep -q 'DYN (' "$T/.elf"
}
for f in "$T"/usr/bin/*; do t "$(basename "$f") is hardened" hard "$f"; done
