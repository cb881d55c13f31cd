#!/bin/bash
# start.sh controller|node: the daemons of one role; ends when the role's Slurm daemon ends.
set -euo pipefail

until_works() {
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    echo "start.sh: does not work within 30 s: $*" >&2
    return 1
}

start_accounting() {
    mariadbd-safe --user=mysql --skip-networking >/dev/null 2>&1 &
    until_works mariadb -e 'select 1'
    mariadb -e "create database if not exists slurm_acct;
        grant all on slurm_acct.* to slurm@localhost identified by 'slurm'"
    slurmdbd
    until_works sacctmgr --noheader show cluster
    sacctmgr --immediate add cluster "$(sed -n 's/^ClusterName=//p' /etc/slurm/slurm.conf)" >/dev/null 2>&1 || true
}

runuser -u munge -- munged
/usr/sbin/sshd
case ${1:-} in
controller)
    if grep -q '^AccountingStorageType=accounting_storage/slurmdbd' /etc/slurm/slurm.conf; then
        start_accounting
    fi
    exec slurmctld -D
    ;;
node)
    touch /dev/fakegpu{0..7}
    exec slurmd -D -N "$(hostname)"
    ;;
*)
    echo "usage: start.sh controller|node" >&2
    exit 2
    ;;
esac
