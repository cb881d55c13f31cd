"""Plays episodes with the policy that the trainer sends. One line of JSON each way, a connection for each request."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import threading

from game import play

PORT = 7100


class Rollouts(socketserver.StreamRequestHandler):
    """One request: the policy, the number of episodes, and a seed."""

    def handle(self) -> None:
        wish = json.loads(self.rfile.readline())
        reward, slope = play(wish["policy"], wish["episodes"], wish["seed"])
        self.wfile.write(json.dumps({"reward": reward, "slope": slope}).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """It ends when the requests under way have their answers."""

    allow_reuse_address = True
    daemon_threads = False


def main() -> None:
    """Serve until TERM."""
    # The own name, and not 0.0.0.0: on one machine each member has an address of its own.
    with Server((os.environ["OVERSPAN_HOST"], PORT), Rollouts) as server:
        signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=server.shutdown).start())
        print(f"worker {os.environ['OVERSPAN_NODE_INDEX']} is ready", flush=True)
        server.serve_forever(poll_interval=0.1)
    print("done", flush=True)


if __name__ == "__main__":
    main()
