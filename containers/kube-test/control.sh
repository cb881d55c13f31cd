#!/usr/bin/env bash
# control.sh SLOT: etcd, API server, controller manager, scheduler and CoreDNS. Started by rig.sh in namespaces of its own.
set -euo pipefail
. "$(dirname "$0")/layout.sh"
use_slot "$1"
cd "$STATE"
umask 077
mkdir -p certs etcd
GATES=GenericWorkload=true,GangScheduling=true

# certify NAME SUBJECT ALTERNATIVE_NAMES USAGE: a key, and a certificate of the rig's authority.
certify() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -config certs/openssl.cnf \
        -CA certs/ca.crt -CAkey certs/ca.key -subj "$2" -addext "subjectAltName=$3" -addext "extendedKeyUsage=$4" \
        -addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature \
        -addext authorityKeyIdentifier=keyid -addext subjectKeyIdentifier=hash \
        -keyout "certs/$1.key" -out "certs/$1.crt" 2>> openssl.log
}

write_certificates() {
    printf '[req]\ndistinguished_name=name\n[name]\n' > certs/openssl.cnf
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -config certs/openssl.cnf \
        -subj /CN=rig-authority -addext basicConstraints=critical,CA:TRUE -addext subjectKeyIdentifier=hash \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout certs/ca.key -out certs/ca.crt 2>> openssl.log
    local names=DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local
    certify server /CN=kube-apiserver "IP:$CONTROL,IP:$API_SERVICE,$names" serverAuth
    certify kubelet-client /O=system:masters/CN=rig-apiserver DNS:rig-apiserver clientAuth
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out certs/accounts.key 2>> openssl.log
    openssl pkey -in certs/accounts.key -pubout -out certs/accounts.pub
}

# add_account FILE USER GROUP: a token, and a kubeconfig with it.
add_account() {
    local token
    token=$(openssl rand -hex 16)
    echo "$token,$2,$1,\"$3\"" >> certs/tokens.csv
    cat > "$1.kubeconfig" <<K
apiVersion: v1
kind: Config
clusters: [{name: rig, cluster: {server: "https://$CONTROL", certificate-authority-data: $AUTHORITY}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: rig, context: {cluster: rig, user: $1, namespace: default}}]
current-context: rig
K
}

start_api() {
    keep etcd etcd --data-dir etcd --unsafe-no-fsync \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380
    keep apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=0.0.0.0 --advertise-address="$CONTROL" --secure-port=443 \
        --tls-cert-file=certs/server.crt --tls-private-key-file=certs/server.key --client-ca-file=certs/ca.crt \
        --token-auth-file=certs/tokens.csv --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --service-cluster-ip-range="$SERVICES" --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file=certs/accounts.pub --service-account-signing-key-file=certs/accounts.key \
        --kubelet-client-certificate=certs/kubelet-client.crt --kubelet-client-key=certs/kubelet-client.key \
        --kubelet-preferred-address-types=InternalIP \
        --feature-gates="$GATES" --runtime-config=scheduling.k8s.io/v1alpha2=true
    for _ in $(seq 600); do
        curl --silent --fail --cacert certs/ca.crt "https://$CONTROL/readyz" > /dev/null && return
        sleep 0.1
    done
    echo "the API server is not ready within 60 s" >&2
    return 1
}

# A node that does not report for NODE_GRACE counts as lost; a real cluster waits for 50 s.
start_controllers() {
    keep controller-manager kube-controller-manager --kubeconfig controller-manager.kubeconfig \
        --service-account-private-key-file=certs/accounts.key --root-ca-file=certs/ca.crt \
        --use-service-account-credentials --leader-elect=false --bind-address=127.0.0.1 \
        --node-monitor-period=1s --node-monitor-grace-period="${NODE_GRACE:-6s}" --feature-gates="$GATES"
    keep scheduler kube-scheduler --kubeconfig scheduler.kubeconfig --leader-elect=false --bind-address=127.0.0.1 \
        --feature-gates="$GATES"
}

start_names() {
    cat > Corefile <<K
.:53 {
    bind $CONTROL
    errors
    kubernetes cluster.local {
        kubeconfig $STATE/coredns.kubeconfig rig
        ttl 1
    }
    cache 1
}
K
    keep coredns coredns -conf Corefile
}

write_certificates
AUTHORITY=$(base64 -w 0 certs/ca.crt)
add_account admin admin system:masters
add_account controller-manager system:kube-controller-manager ""
add_account scheduler system:kube-scheduler ""
add_account coredns coredns system:masters
for number in $(seq 9); do add_account "node$number" "system:node:node$number" system:nodes; done
start_api
start_controllers
start_names
touch ready
wait
