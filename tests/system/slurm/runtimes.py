"""A stand-in for a container runtime."""

from __future__ import annotations

STAND_IN = """\
#!/bin/bash
# apptainer exec [OPTION...] IMAGE WORD...
shift
binds=() folder=/
while case $1 in --*) true;; *) false;; esac; do
  case $1 in --bind=*) binds+=("${1#*=}");; --pwd=*) folder=${1#*=};; esac
  shift
done
export IN_IMAGE=$1 GREETING=image BASE=image
shift
for name in $(compgen -e APPTAINERENV_); do export "${name#APPTAINERENV_}=${!name}"; unset "$name"; done
export BINDS="$(printf '%s\\n' "${binds[@]}")" FOLDER=$folder
exec unshare --map-root-user --mount /bin/bash -c '
  while IFS=: read -r source target; do
    case $target in /etc/hosts|/corpus) mount --bind "$source" "$target" || exit 90;; esac
  done <<<"$BINDS"
  cd "$FOLDER" && exec "$@"' mounts "$@"
"""
