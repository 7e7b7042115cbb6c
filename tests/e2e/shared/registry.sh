# shared/registry.sh - sourced by tests of OCI registries: Debian's docker-registry on loopback.
registry=
trap 'kill $registry ${server:-} 2>/dev/null; rm -rf "$T"' EXIT
# registry_start HTTP [YAML...] - with more settings of `http` (", name: value"), and more lines; A is its address, L its log.
registry_start() {
    local http=$1 k; shift
    [ -z "$registry" ] || { kill "$registry"; wait "$registry"; } 2>/dev/null
    for k in 1 2 3 4 5; do              # a port may be in use
        A=127.0.0.1:$((20000 + RANDOM % 12000))
        printf '%s\n' 'version: 0.1' 'log: {accesslog: {disabled: false}, level: error}' \
            "storage: {filesystem: {rootdirectory: $T/store}, delete: {enabled: true}}" "http: {addr: $A, secret: s$http}" "$@" >"$T/registry.yml"
        docker-registry serve "$T/registry.yml" >"$T/registry.log" 2>&1 & registry=$!
        for _ in $(seq 50); do
            kill -0 "$registry" 2>/dev/null || break
            curl -s -o /dev/null "http://$A/v2/" && return
            sleep 0.1
        done
    done
    echo "not ok a registry starts"; exit 1
}
