#!/usr/bin/env bash
# A real Kubernetes in a network namespace, as processes of this machine. Run as root; see README.md.
set -euo pipefail
. "$(dirname "$0")/layout.sh"
. "$HERE/go.sh"
export PATH=$BUILD/bin:$PATH:/usr/local/go/bin BUILD IMAGES
READY_SECONDS=${READY_SECONDS:-120}

usage() {
    cat >&2 <<'U'
usage: rig.sh COMMAND [ARGUMENTS]
  check                  say in one line why a rig cannot be started at once, if so
  build                  compile the programs and make the images, if that is not done yet
  up [NODES]             start a rig with so many nodes (2) and say where its kubeconfig is
  attend [NODES]         the same, as long as standard input is open
  down SLOT              end a rig; nothing of it is left
  kill-node SLOT N       node N is without power
  start-node SLOT N      start node N: one that was killed, or a new one (1 to 9)
  stop SLOT PART         kill a part; it stays away
  start SLOT PART        let it run again
  freeze SLOT PART       stop it as it is; `thaw SLOT PART` lets it go on
  compact SLOT           forget all earlier states: who continues from one of them is told so (410)
  logs SLOT              what all parts have said
Parts: apiserver etcd controller-manager scheduler coredns node1-kubelet node1-containerd ...
U
    exit 2
}

fail() {
    echo "rig.sh: $*" >&2
    exit 1
}

# What has to be there, or why a rig cannot run here, in one line.
check_machine() {
    local missing=() name
    [ "$(id -u)" = 0 ] || fail "only root can start it"
    [ -d "$BUILD" ] && [ -d "$IMAGES" ] || { command -v go > /dev/null || missing+=(golang-go); }
    [ -d "$IMAGES" ] || { command -v debootstrap > /dev/null || missing+=(debootstrap); }
    for name in ip:iproute2 runc:runc nsenter:util-linux unshare:util-linux flock:util-linux openssl:openssl \
        curl:curl sysctl:procps; do
        command -v "${name%:*}" > /dev/null || missing+=("${name#*:}")
    done
    [ ${#missing[@]} = 0 ] || fail "not installed: ${missing[*]} (Debian names)"
}

# Compile and make images, each into a folder that gets its name when it is complete. Older ones go when no rig runs.
build() {
    local old
    mkdir -p "$CACHE"
    exec 8> "$CACHE/kube.lock"
    flock 8
    if [ ! -d "$BUILD" ]; then
        use_go || fail "no Go $GO"
        "$HERE/build.sh" "$CACHE/kube-building" >&2 || fail "the programs do not build"
        mv "$CACHE/kube-building" "$BUILD"
    fi
    if [ ! -d "$IMAGES" ]; then
        rm -rf "$IMAGES.part"
        python3 "$HERE/images.py" "$BUILD" "$IMAGES.part" >&2 || fail "no images"
        mv "$IMAGES.part" "$IMAGES"
    fi
    if [[ $(ip netns list) != *overspan-kube-* ]]; then
        for old in "$CACHE"/kube-???????????????? "$CACHE"/kube-images-????????????????; do
            [ "$old" = "$BUILD" ] || [ "$old" = "$IMAGES" ] || rm -rf "$old"
        done
    fi
    exec 8>&-
}

# inside PROCESS SCRIPT ARGUMENTS...: a script as the first process of process, mount and cgroup namespaces of its own.
# It hears nothing: it ends by SIGKILL, and everything in its namespace with it.
inside() {
    local process=$1
    shift
    (
        join_groups "$NAME/$process"
        exec setsid nsenter --net="/run/netns/$NAME" unshare --cgroup \
            "$HERE/rig.sh" enter "$NAME/$process" "$@"
    ) < /dev/null > "$STATE/$process.out" 2>&1 &
    echo $! > "$STATE/$process.pid"
    disown
}

# enter PATH SCRIPT ARGUMENTS...: the second half of `inside`, in the new cgroup namespace. In version 2 only a group
# without processes of its own gives controllers to those below it: the daemons go one further down.
enter() {
    local root path=$1
    shift
    for root in $(awk '$3 == "cgroup2" { print $2 }' /proc/mounts); do
        mkdir -p "$root/$path/daemons"
        echo $$ > "$root/$path/daemons/cgroup.procs"
    done
    exec unshare --pid --mount --fork --kill-child --mount-proc "$@"
}

# group_roots: where hierarchies of control groups are mounted, of both versions.
group_roots() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# join_groups PATH: this process goes into control groups of that path. Those of cpuset begin without a processor.
join_groups() {
    local root folder part file
    for root in $(group_roots); do
        folder=$root
        for part in ${1//\// }; do
            mkdir -p "$folder/$part"
            for file in cpuset.cpus cpuset.mems; do
                [ "$root" != "${root%cpuset*}" ] && cat "$folder/$file" > "$folder/$part/$file"
            done
            folder+=/$part
        done
        echo "$BASHPID" > "$folder/cgroup.procs"
    done
}

pids() { ip netns pids "$NAME" 2> /dev/null || true; }

# command_of PID: its command line with blanks; nothing when it is gone.
command_of() { tr '\0' ' ' 2> /dev/null < "/proc/$1/cmdline" || true; }

# find_part PART: the process of a part, which is looked for among the rig's own only.
find_part() {
    local pid program rest
    for pid in $(pids); do
        read -r program rest <<< "$(command_of "$pid")" || true
        case $1:${program##*/}:$rest in
        node*-kubelet:kubelet:*"--hostname-override ${1%-kubelet} "*) echo "$pid" ;;
        node*-containerd:containerd:*)
            if [ "$(readlink "/proc/$pid/cwd")" = "/run/rig/state/${1%-containerd}" ]; then echo "$pid"; fi ;;
        "${program#kube-}:$program:"*) echo "$pid" ;;
        esac
    done
}

# await WHAT COMMAND...: until it works.
await() {
    local what=$1 deadline=$((SECONDS + READY_SECONDS))
    shift
    until "$@"; do
        [ $SECONDS -lt $deadline ] || fail "$what: not within $READY_SECONDS s; see $STATE/*.log"
        sleep 0.1
    done
}

gone() { [ ! -e "/proc/$1/stat" ] || grep -q ') Z ' "/proc/$1/stat" 2> /dev/null; }

kube() { kubectl --kubeconfig "$STATE/admin.kubeconfig" "$@"; }

connect() {
    ip netns add "$NAME"
    ip link add "$VETH" type veth peer name eth0 netns "$NAME"
    ip addr add "$GATEWAY/24" dev "$VETH"
    ip link set "$VETH" up
    ip route add "10.214.$((16 * SLOT)).0/20" via "$CONTROL"
    ip -n "$NAME" addr add "$CONTROL/24" dev eth0
    ip -n "$NAME" link set lo up
    # Pods reach the API server as in any cluster, although no kube-proxy runs.
    ip -n "$NAME" addr add "$API_SERVICE/32" dev lo
    ip -n "$NAME" link set eth0 up
    ip -n "$NAME" route add default via "$GATEWAY"
}

# A free slot is one whose lock nobody holds. The control processes inherit the lock, and hold it as long as they live;
# who attends a rig holds it until all is cleared.
take_slot() {
    local slot
    mkdir -p "$SLOTS"
    chmod 700 "$SLOTS"
    for slot in $(seq 0 15); do
        exec 9> "$SLOTS/$slot.lock"
        if flock --nonblock 9; then
            use_slot "$slot"
            return
        fi
    done
    fail "all 16 slots are taken"
}

control_lives() {
    gone "$(cat "$STATE/control.pid")" && fail "the control plane ended: $(tail -n 1 "$STATE/control.out")"
    [ -f "$STATE/ready" ]
}

up() {
    local number count=${1:-2}
    check_machine
    build
    take_slot
    clear_slot
    mkdir "$STATE"
    trap give_up EXIT
    connect
    inside control "$HERE/control.sh" "$SLOT"
    await "the API server" control_lives
    for number in $(seq "$count"); do launch_node "$number"; done
    for number in $(seq "$count"); do await_node "$number"; done
    kube wait --for=create --timeout="${READY_SECONDS}s" serviceaccount/default > /dev/null
    trap - EXIT
    echo "export KUBECONFIG=$STATE/admin.kubeconfig"
    echo "export PATH=$BUILD/bin:\$PATH"
    echo "# slot $SLOT; to end it: rig.sh down $SLOT"
}

give_up() {
    trap - EXIT
    tail -qn 3 "$STATE"/*.out "$STATE"/*.log >&2 || true
    clear_slot
}

launch_node() {
    local address
    address=$(node_address "$1")/24
    [[ $(ip -n "$NAME" addr show dev eth0) = *" $address "* ]] || ip -n "$NAME" addr add "$address" dev eth0
    mkdir -p "$STATE/node$1"
    rm -f "$STATE/node$1/images-ready"
    date --utc +%FT%TZ > "$STATE/node$1/began"
    inside "node$1" "$HERE/node.sh" "$SLOT" "$1" 9>&-
}

await_node() {
    await "node$1" test -f "$STATE/node$1/images-ready"
    await "node$1" reports "$1"
}

# reports NUMBER: whether the node is ready, said by its new kubelet: what an earlier one said stays for a while.
reports() {
    local query='{range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}' status time
    read -r status time < <(kube get node "node$1" -o jsonpath="$query" 2> /dev/null) || true
    [ "$status" = True ] && [[ $time > $(cat "$STATE/node$1/began") ]]
}

kill_node() {
    local outer inner
    outer=$(cat "$STATE/node$1.pid" 2> /dev/null) || fail "node$1 does not run"
    [[ " $(pids | paste -sd ' ') " = *" $outer "* ]] || fail "node$1 does not run"
    inner=$(cat "/proc/$outer/task/$outer/children")
    # Its parent ends when all that is in its namespace is gone.
    kill -KILL "${inner% }"
    await "the end of node$1" gone "$outer"
    rm "$STATE/node$1.pid"
    await "the end of its control groups" remove_groups "$NAME/node$1"
}

# remove_groups PATH: control groups that containers left behind. Whether all are gone: a process leaves its group
# a moment after its other namespaces.
remove_groups() {
    local root left=0
    for root in $(group_roots); do
        [ -d "$root/$1" ] || continue
        find "$root/$1" -depth -type d -exec rmdir {} + 2> /dev/null || left=1
    done
    return $left
}

# end_all: whether all processes of the rig have ended, after a blow to all but those that wait for the others.
end_all() {
    local pid left
    left=$(pids)
    for pid in $left; do
        [[ $(command_of "$pid") = unshare\ --pid* ]] || kill -KILL "$pid" 2> /dev/null || true
    done
    [ -z "$left" ]
}

# Everything that a slot can have, whether it was ended well or not.
clear_slot() {
    await "the rig's end" end_all
    ip netns delete "$NAME" 2> /dev/null || true
    ip link delete "$VETH" 2> /dev/null || true
    await "the end of its control groups" remove_groups "$NAME"
    rm -rf "$STATE"
}

signal_part() {
    local pid
    pid=$(find_part "$2")
    [ -n "$pid" ] || fail "$2 does not run"
    kill "-$1" "$pid"
    [ "$1" != KILL ] || await "the end of $2" gone "$pid"
}

# etcd listens inside the rig's network only.
compact() {
    local revision
    etcd() { nsenter --net="/run/netns/$NAME" curl --silent --fail "http://127.0.0.1:2379/v3/kv/$1" --data "$2"; }
    revision=$(etcd range '{"key": "AA=="}' | grep -o '"revision":"[0-9]*"' | tr -dc 0-9)
    etcd compaction "{\"revision\": \"$revision\", \"physical\": true}" > /dev/null
}

existing_slot() {
    [[ ${1:-} =~ ^([0-9]|1[0-5])$ ]] || usage
    use_slot "$1"
    [ -d "$STATE" ] || fail "no rig in slot $1"
}

command=${1:-}
shift || true
case $command in
check)
    check_machine
    [ -d "$BUILD" ] && [ -d "$IMAGES" ] || fail "not compiled yet: containers/kube-test/rig.sh build (about 6 minutes)"
    ;;
build)
    check_machine
    build
    ;;
up) up "$@" ;;
attend)
    up "$@"
    cat > /dev/null || true
    clear_slot
    ;;
down)
    existing_slot "${1:-}"
    clear_slot
    ;;
kill-node | start-node)
    existing_slot "${1:-}"
    [[ ${2:-} =~ ^[1-9]$ ]] || usage
    if [ "$command" = kill-node ]; then
        kill_node "$2"
    else
        launch_node "$2"
        await_node "$2"
    fi
    ;;
stop | start | freeze | thaw)
    existing_slot "${1:-}"
    [ $# = 2 ] || usage
    case $command in
    stop)
        touch "$STATE/$2.stopped"
        signal_part KILL "$2"
        ;;
    start) rm -f "$STATE/$2.stopped" ;;
    freeze) signal_part STOP "$2" ;;
    thaw) signal_part CONT "$2" ;;
    esac
    ;;
compact)
    existing_slot "${1:-}"
    compact
    ;;
enter) enter "$@" ;;
logs)
    existing_slot "${1:-}"
    tail -n "${LINES_OF_LOG:-50}" "$STATE"/*.log "$STATE"/*.out
    ;;
*) usage ;;
esac
