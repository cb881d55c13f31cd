"""Ways to reach a cluster: commands of this machine, the OpenSSH programs, paramiko."""
