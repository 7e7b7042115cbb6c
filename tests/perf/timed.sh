# timed.sh - sourced by benches of a server on these cores: $server is its process, $T a folder, GB what is moved.
# timed WHAT COMMAND... - prints what it took: seconds of the wall, of CPU (and of the server's), MiB resident, GB/s.
ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }
timed() {
    local what=$1 before; shift; before=$(ticks)
    /usr/bin/env time -f '%e %U %S %M' -o "$T/time" "$@" >/dev/null 2>"$T/err" || { echo "$what failed"; tail -n 3 "$T/err"; return 1; }
    awk -v what="$what" -v gb="$GB" -v served=$(($(ticks) - before)) '{ printf "%-46s %6.2f s, %5.2f s of CPU (server %5.2f), %4d MiB, %.2f GB/s\n", what, $1, $2 + $3, served / 100, $4 / 1024, gb / $1 }' <(tail -n 1 "$T/time")
}
