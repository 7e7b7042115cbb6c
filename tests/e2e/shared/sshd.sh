# shared/sshd.sh - sourced by tests of what goes over ssh: a real sshd on loopback with keys and settings of its own.
sshd=
# sshd_start ADDRESS... - sport is its port on each, $T/host its key, $T/keys the keys that it lets in, $T/sshd.log what it says.
# Status 1 where there is no sshd.
sshd_start() {
    local program k address; program=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null) || return 1
    [ -e "$T/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$T/host"
    # Root's sshd asks for this folder; tests that run side by side share it, so nobody removes it.
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
    for k in 1 2 3 4 5; do              # a port may be in use
        sport=$((20000 + RANDOM % 12000))
        printf '%s\n' "Port $sport" "${@/#/ListenAddress }" "HostKey $T/host" "AuthorizedKeysFile $T/keys" "StrictModes no" "UsePAM no" "PidFile none" \
            "PasswordAuthentication no" "KbdInteractiveAuthentication no" "PermitRootLogin prohibit-password" >"$T/sshd.conf"
        "$program" -D -f "$T/sshd.conf" -E "$T/sshd.log" & sshd=$!
        for _ in $(seq 100); do
            kill -0 "$sshd" 2>/dev/null || break
            for address; do (exec 3<>"/dev/tcp/$address/$sport") 2>/dev/null || { sleep 0.05; continue 2; }; done
            grep -q 'Bind to port' "$T/sshd.log" || return 0
            break
        done
        kill "$sshd" 2>/dev/null; wait "$sshd" 2>/dev/null; rm -f "$T/sshd.log"
    done
    echo "not ok sshd starts"; exit 1
}
