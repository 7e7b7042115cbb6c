#!/usr/bin/env bash
# bundle.sh BUILD OUT - OUT/ and OUT.tar.xz: the tools, plug-ins and the libraries they need, which
# runs on any x86-64 Linux of a glibc not older than this machine's.  Left out are glibc itself, the
# driver and CUDA's libraries, which ckpt finds where they are installed, and Open MPI, whose own
# files belong to the machine (libckpt_mpi.so is taken along and needs it there).
set -eu
build=$1 out=$2
command -v patchelf >/dev/null || { echo "bundle: patchelf is missing (apt-get install patchelf)" >&2; exit 69; }
rm -rf "$out" "$out.tar.xz"
mkdir -p "$out/bin" "$out/lib/ckpt"
cp "$build"/ckpt-{train,merge,push,inspect,eval} "$out/bin"
for so in "$build"/libckpt_*.so; do [ -e "$so" ] && cp "$so" "$out/lib/ckpt"; done
# What they need, and what that needs: ldd gives the closure.
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnss_.*|libanl|libcuda|libcublasLt|libmpi|libopen-.*)\.so'
for f in "$out"/bin/* "$out"/lib/ckpt/libckpt_gloo.so; do [ ! -e "$f" ] || ldd "$f"; done | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
while read -r name path; do
    [[ $name =~ $system ]] || cp -L "$path" "$out/lib/$name"
done
# libcurl is opened by name when an address is read.
curl=$(ldconfig -p | awk '/libcurl\.so\.4 .*x86-64/ { print $NF; exit }')
if [ -n "$curl" ]; then
    cp -L "$curl" "$out/lib/libcurl.so.4"
    ldd "$curl" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r name path; do
        [[ $name =~ $system ]] || [ -e "$out/lib/$name" ] || cp -L "$path" "$out/lib/$name"
    done
fi
for f in "$out"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$f"; done
for f in "$out"/lib/*.so*; do patchelf --set-rpath '$ORIGIN' "$f"; done
[ ! -e "$out/lib/ckpt/libckpt_gloo.so" ] || patchelf --set-rpath '$ORIGIN/..' "$out/lib/ckpt/libckpt_gloo.so"
strip "$out"/bin/* "$out"/lib/ckpt/*.so 2>/dev/null || true
tar -C "$(dirname "$out")" -cJf "$out.tar.xz" "$(basename "$out")"
du -h "$out.tar.xz"
