"""Plays episodes with the policy that the trainer sends. One line of JSON each way, a connection for each request."""

import json
import os
import signal
import socketserver
import threading

from game import play

PORT = 7100


class Rollouts(socketserver.StreamRequestHandler):
    """One request: the policy, the number of episodes, and a seed."""

    def handle(self):
        wish = json.loads(self.rfile.readline())
        reward, better = play(wish["policy"], wish["episodes"], wish["seed"])
        self.wfile.write(json.dumps({"reward": reward, "better": better}).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """It ends when the requests under way have their answers."""

    allow_reuse_address = True
    daemon_threads = False


# The own name, and not 0.0.0.0: on one machine each member has an address of its own.
with Server((os.environ["OVERSPAN_HOST"], PORT), Rollouts) as server:
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=server.shutdown).start())
    print(f"worker {os.environ['OVERSPAN_NODE_INDEX']} is ready", flush=True)
    server.serve_forever(poll_interval=0.1)
print("done", flush=True)
