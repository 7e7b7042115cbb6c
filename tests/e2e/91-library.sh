# The program of libckpt(3), built by a stranger's means, against the installed library.
. "$(dirname "$0")/lib.sh"
make -s install PREFIX="$T/usr" MODE="$(basename "$B")" >/dev/null 2>"$T/.err" || { echo "not ok install"; cat "$T/.err"; exit 1; }
echo "ok install"
sed -n '/^\.Bd -literal/,/^\.Ed/p' man/libckpt.3 | sed '1d;$d;s/\\en/\\n/g' > "$T/list.c"
export PKG_CONFIG_PATH=$T/usr/lib/pkgconfig LD_LIBRARY_PATH=$T/usr/lib
t "the program of the manual compiles" bash -c "gcc -Wall -Werror -o $T/list $T/list.c \$(pkg-config --cflags --libs ckpt)"
t "runs" bash -c "$T/list $G/deepspeed/0.19-s3_w2_bf16/ckpt | grep -q '^emb.weight F32 \[31, 18\] '"
t "tells its failure" bash -c "! $T/list $T/nothing"
t "exports only its own names" bash -c "! nm -D --defined-only $T/usr/lib/libckpt.so | grep -vE ' (ckpt_|A )' | grep -v ' _'"
t "manuals are installed" test -e "$T/usr/share/man/man1/ckpt-merge.1"
t "installed tools run" "$T/usr/bin/ckpt-inspect" --version
hard() { readelf -hldW "$1" | tee "$T/.elf" | grep -q 'BIND_NOW\|NOW' && grep -q GNU_RELRO "$T/.elf" && ! grep 'GNU_STACK.*RWE' "$T/.elf" && grep -q 'DYN (' "$T/.elf"; }
for f in "$T"/usr/bin/*; do t "$(basename "$f") is hardened" hard "$f"; done
