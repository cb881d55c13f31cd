# Sourced by the rig's scripts: where everything of a rig is. Rigs have slots 0 to 15, with addresses of their own.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/overspan/rigs
SLOTS=$CACHE/kube-slots

# hash_of FILE...: a short name for what is built from these files.
hash_of() { (cd "$HERE" && sha256sum "$@") | sha256sum | cut -c 1-16; }

BUILD=$CACHE/kube-$(hash_of versions.sh build.sh)
IMAGES=$CACHE/kube-images-$(hash_of versions.sh build.sh images.py)
SERVICES=10.215.0.0/16
API_SERVICE=10.215.0.1

# use_slot SLOT
use_slot() {
    SLOT=$1
    STATE=$SLOTS/$SLOT
    # The name of the network namespace, and of the folder of control groups.
    NAME=overspan-kube-$SLOT
    VETH=ospk$SLOT
    GATEWAY=10.213.$SLOT.1
    CONTROL=10.213.$SLOT.2
}

node_address() { echo "10.213.$SLOT.$((10 + $1))"; }

pod_network() { echo "10.214.$((16 * SLOT + $1)).0/24"; }

# keep LOG COMMAND...: runs it in the background, and again when it ends; not while a file LOG.stopped is there.
keep() {
    local log=$1
    shift
    while :; do
        [ -e "$log.stopped" ] || "$@" >> "$log.log" 2>&1 || true
        sleep 0.1
    done &
}
