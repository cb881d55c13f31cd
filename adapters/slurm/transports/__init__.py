"""Transports to a cluster: commands of this machine, the OpenSSH programs, paramiko."""
