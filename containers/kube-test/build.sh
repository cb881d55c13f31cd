#!/usr/bin/env bash
# build.sh DIR: compiles Kubernetes, etcd, containerd, CoreDNS and the CNI plugins from Go modules into DIR/bin.
# What is there already is not compiled again. The go command, its proxy and its toolchain come from the environment.
set -euo pipefail

DIR=$(realpath -m "${1:?usage: build.sh DIR}")
HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=versions.sh
. "$HERE/versions.sh"
BIN=$DIR/bin
export CGO_ENABLED=0 GOFLAGS=-trimpath
KUBERNETES_COMMANDS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)

# start_module NAME: a module of its own, so that no program decides another's dependencies.
start_module() {
    mkdir -p "$DIR/src/$1"
    cd "$DIR/src/$1"
    [ -f go.mod ] || printf 'module rig/%s\n' "$1" > go.mod
}

# compile NAME PACKAGE [LDFLAGS] [TAGS]
compile() {
    [ -x "$BIN/$1" ] && return
    local began=$SECONDS
    go build -ldflags "-s -w ${3:-}" -tags "${4:-}" -o "$BIN/.$1" "$2"
    mv "$BIN/.$1" "$BIN/$1"
    echo "$1: $((SECONDS - began)) s"
}

# add_tools PACKAGE@VERSION...
add_tools() {
    grep -q '^require' go.mod || go get -tool "$@"
}

# k8s.io/kubernetes replaces its staging modules by folders; they are published with the same minor and patch numbers.
write_kubernetes_module() {
    local original name
    original=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    {
        echo "module rig/kubernetes"
        sed -n 's/^go .*/&/p' "$original"
        echo "require k8s.io/kubernetes $KUBERNETES"
        sed -n "s#^\s*\(k8s.io/[a-z0-9/.-]*\) => ./staging.*#replace \1 => \1 v0.${KUBERNETES#v1.}#p" "$original"
        for name in "${KUBERNETES_COMMANDS[@]}"; do echo "tool k8s.io/kubernetes/cmd/$name"; done
    } > go.mod
    go mod tidy
}

build_kubernetes() {
    local flags="" minor=${KUBERNETES#v1.} package name
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=$KUBERNETES -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
        flags+=" -X $package.gitTreeState=clean"
    done
    start_module kubernetes
    grep -q '^replace' go.mod && [ -f go.sum ] || write_kubernetes_module
    for name in "${KUBERNETES_COMMANDS[@]}"; do compile "$name" "k8s.io/kubernetes/cmd/$name" "$flags"; done
}

build_etcd() {
    start_module etcd
    add_tools "go.etcd.io/etcd/server/v3@$ETCD"
    compile etcd go.etcd.io/etcd/server/v3
}

build_containerd() {
    local commands=github.com/containerd/containerd/v2/cmd name
    start_module containerd
    add_tools "$commands/"{containerd,containerd-shim-runc-v2,ctr}"@$CONTAINERD"
    for name in containerd containerd-shim-runc-v2 ctr; do
        compile "$name" "$commands/$name" "" no_btrfs,no_zfs,no_devmapper
    done
}

build_cni_plugins() {
    local plugins=github.com/containernetworking/plugins/plugins
    start_module cni
    add_tools "$plugins/"{main/bridge,main/loopback,ipam/host-local}"@$CNI_PLUGINS"
    compile bridge "$plugins/main/bridge"
    compile loopback "$plugins/main/loopback"
    compile host-local "$plugins/ipam/host-local"
}

build_coredns() {
    local coredns=github.com/coredns/coredns name
    start_module coredns
    if [ ! -f main.go ]; then
        go get "$coredns@$COREDNS"
        {
            echo "package main"
            echo "import \"$coredns/coremain\""
            for name in bind cache errors kubernetes; do echo "import _ \"$coredns/plugin/$name\""; done
            echo "func main() { coremain.Run() }"
        } > main.go
        go mod tidy
    fi
    compile coredns .
}

# The program that keeps a pod's namespaces open.
build_pause() {
    start_module pause
    cat > main.go <<'GO'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
GO
    compile pause .
}

mkdir -p "$BIN"
build_kubernetes
build_etcd
build_containerd
build_cni_plugins
build_coredns
build_pause
rm -r "$DIR/src"
