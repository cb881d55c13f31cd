#!/usr/bin/env bash
# node.sh SLOT NUMBER: containerd and a kubelet. Started by rig.sh in namespaces of its own.
set -euo pipefail
. "$(dirname "$0")/layout.sh"
use_slot "$1"
NUMBER=$2
NODE=node$NUMBER
SOCKET=/run/containerd/containerd.sock

# The node sees no control groups but its own: the root of its cgroup namespace.
mount_groups() {
    local hierarchies folder options
    if [ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ]; then
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        return
    fi
    hierarchies=$(awk '$3 == "cgroup" { print $2, $4 }' /proc/mounts)
    mount -t tmpfs tmpfs /sys/fs/cgroup
    while read -r folder options; do
        # What is left are controllers, or a name.
        options=$(tr , '\n' <<< "$options" | grep -vxE 'rw|(no)?(suid|dev|exec|atime)|relatime|xattr|release_agent=.*' | paste -sd ,)
        [[ $options = name=* ]] && options=none,$options
        mkdir "$folder"
        mount -t cgroup -o "$options" cgroup "$folder"
    done <<< "$hierarchies"
}

# The machine's own folders are not written to: the node has its own below the same names.
mount --make-rprivate /
mount_groups
mkdir -p "$STATE/$NODE"/{lib,log}
mount -t tmpfs tmpfs /run
mkdir -p /run/rig/{build,images,state} /run/containerd /run/lock /run/netns
mount --bind "$BUILD" /run/rig/build
mount --bind "$IMAGES" /run/rig/images
mount --bind "$STATE" /run/rig/state
mount --bind "/run/rig/state/$NODE/lib" /var/lib
mount --bind "/run/rig/state/$NODE/log" /var/log
mkdir -p /var/lib/kubelet
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-shared /var/lib/kubelet
# An image that is not there is refused at once: no name leads to a registry.
echo "nameserver $CONTROL" > /run/rig/resolv.conf
mount --bind /run/rig/resolv.conf "$(realpath /etc/resolv.conf)"
export PATH=/run/rig/build/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd "/run/rig/state/$NODE"
sysctl -qw net.ipv4.ip_forward=1

write_containerd_files() {
    mkdir -p cni
    cat > cni/10-bridge.conflist <<K
{"cniVersion": "1.0.0", "name": "rig", "plugins": [{"type": "bridge", "bridge": "cni$NUMBER", "isGateway": true,
 "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pod_network "$NUMBER")"}]],
 "routes": [{"dst": "0.0.0.0/0"}]}}]}
K
    cat > containerd.toml <<K
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "docker.io/rig/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/run/rig/build/bin"]
    conf_dir = "/run/rig/state/$NODE/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
K
}

# Works with control groups of version 1, without CAP_SYS_RESOURCE, and on a disk that is nearly full.
write_kubelet_file() {
    cat > kubelet.yaml <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: ../certs/ca.crt}}
authorization: {mode: AlwaysAllow}
address: $(node_address "$NUMBER")
healthzBindAddress: $(node_address "$NUMBER")
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
clusterDNS: ["$CONTROL"]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$SOCKET
volumePluginDir: /var/lib/kubelet/plugins-exec
maxOpenFiles: 4096
maxPods: 250
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 4
featureGates: {KubeletInUserNamespace: true}
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
K
}

import_images() {
    for image in /run/rig/images/*.tar; do
        # The default way of transfer knows no platform to unpack for.
        ctr --address "$SOCKET" --namespace k8s.io images import --local --snapshotter overlayfs "$image"
    done > ../"$NODE"-images.log 2>&1
}

write_containerd_files
write_kubelet_file
keep "../$NODE-containerd" containerd --config containerd.toml
for _ in $(seq 300); do
    [ -S "$SOCKET" ] && break
    sleep 0.1
done
import_images
touch images-ready
keep "../$NODE-kubelet" kubelet --config kubelet.yaml --kubeconfig "../$NODE.kubeconfig" \
    --hostname-override "$NODE" --node-ip "$(node_address "$NUMBER")"
wait
