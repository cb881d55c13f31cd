#!/usr/bin/env bash
# system_packages.sh demo|tests: installs the Debian packages that the demo or the tests use, as root; else says which.
# The demo needs all of its own. Tests that miss something are skipped by name.
set -euo pipefail
scope=${1:?usage: system_packages.sh demo|tests}
here=$(dirname "$0")

if [ -n "${PYTHON:-}" ] && [ -z "$("$here/python.sh" "$PYTHON")" ]; then
    echo "PYTHON=$PYTHON: not a Python 3.11 or newer with ensurepip" >&2
    exit 1
fi

find_missing() {
    missing=()
    need unshare util-linux
    need setpriv util-linux
    need getent libc-bin
    [ -n "${PYTHON:-$("$here/python.sh")}" ] || missing+=(python3 python3-venv)
    if [ "$scope" = demo ]; then
        names_by_namespaces || need_wrapper
    else
        need_wrapper
        need curl curl
        need ps procps
        need ssh openssh-client
        [ "$(id -u)" != 0 ] || find_missing_of_rigs
    fi
}

need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }

# Members have names by namespaces of their own, or by this library.
names_by_namespaces() {
    if [ "$(id -u)" = 0 ]; then unshare --mount --uts true; else unshare --map-root-user --mount --uts true; fi 2>/dev/null
}

need_wrapper() {
    compgen -G '/usr/lib*/libnss_wrapper.so*' >/dev/null || compgen -G '/usr/lib/*/libnss_wrapper.so*' >/dev/null ||
        missing+=(libnss-wrapper)
}

# A rig is what only root can start.
find_missing_of_rigs() {
    # Slurm, of containers/slurm-test: an engine that runs, or one that the tests start; its base system.
    docker info >/dev/null 2>&1 || need dockerd docker.io
    need debootstrap debootstrap
    # Kubernetes, of containers/kube-test, which is compiled here.
    PATH=$PATH:/usr/local/go/bin need go golang-go
    need runc runc
    need ip iproute2
    need flock util-linux
    need openssl openssl
    need sysctl procps
}

install() {
    local packages talk
    mapfile -t packages < <(printf '%s\n' "${missing[@]}" | sort -u)
    echo "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    talk=$({ apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } 2>&1) ||
        echo "$talk" >&2
}

find_missing
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install
    find_missing
fi
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
names=$(printf '%s\n' "${missing[@]}" | sort -u | paste -sd ' ')
if [ "$scope" = tests ]; then
    echo "not installed, by Debian's names: $names; tests that need them are skipped by name" >&2
    exit 0
fi
echo "not installed, by Debian's names: $names. Install them, then run the same command again:" >&2
echo "    sudo apt-get install $names" >&2
if [[ $names = *python3* ]] && python3 -c 'import sys; sys.exit(sys.version_info >= (3, 11))' 2>/dev/null; then
    echo "$(python3 --version) is too old. If that is this system's, take another: make demo PYTHON=/path/to/python3.12" >&2
fi
exit 1
