"""Speed and memory of what users wait for; `make bench` prints the table of docs/performance.md."""
