#!/usr/bin/env bash
# Installs Debian packages that the demo and the tests use, as root; else says what is missing.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need unshare util-linux
need getent libc-bin
need setpriv util-linux
need curl curl
compgen -G '/usr/lib*/libnss_wrapper.so*' >/dev/null || compgen -G '/usr/lib/*/libnss_wrapper.so*' >/dev/null ||
    missing+=(libnss-wrapper)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# The Slurm rig of containers/slurm-test: an engine that runs, or one that the tests start; its base system.
if [ "$(id -u)" = 0 ]; then
    docker info >/dev/null 2>&1 || need dockerd docker.io
    need debootstrap debootstrap
    # The Kubernetes rig of containers/kube-test, which is compiled here.
    PATH=$PATH:/usr/local/go/bin need go golang-go
    need runc runc
    need ip iproute2
    need flock util-linux
    need openssl openssl
    need sysctl procps
fi

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
        echo "could not install: ${missing[*]}; tests that need them are skipped by name" >&2
else
    echo "not installed, and only root can: ${missing[*]} (Debian names); what needs them is skipped by name" >&2
fi
