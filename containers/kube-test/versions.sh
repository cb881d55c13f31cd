# What the rig is compiled from. A change here makes a new build.
KUBERNETES=v1.36.3
ETCD=v3.6.16
CONTAINERD=v2.4.2
COREDNS=v1.15.0
CNI_PLUGINS=v1.9.0
