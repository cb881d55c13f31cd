"""Listens on ports and connects to a peer that does the same: `python3 trial.py PEER WORD SECONDS PORT...`.

It imports nothing of Overspan, so that its text alone can be the program of a task, for Python 3.9 or newer. Both sides
say WORD, so that what another program answers is not taken for the peer. Each port gives two lines of JSON on stdout:
what came of listening on it here, and of connecting to it at the peer.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

TRY_SECONDS = 3.0
"""How long one connection may take to be made, and to be answered."""
PAUSE_SECONDS = 0.2
"""Between two tries."""
LISTENS, CONNECTS = "listens", "connects"


class Trial:
    """One side of a trial: `results` has what is known, a mapping for each line that is printed."""

    def __init__(self, peer: str, word: str, seconds: float) -> None:
        self.peer = peer
        self.word = word.encode() + b"\n"
        self.until = time.monotonic() + seconds
        self.results: list[dict[str, Any]] = []
        self.visited: set[int] = set()

    def play(self, ports: Sequence[int]) -> None:
        """Listen, connect, and wait until the peer has come to each port too, or the time is over."""
        listening = [port for port in ports if self.listen(port)]
        callers = [threading.Thread(target=self.call, args=(port,), daemon=True) for port in ports]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        while time.monotonic() < self.until and not self.visited.issuperset(listening):
            time.sleep(0.02)

    def listen(self, port: int) -> bool:
        """Answer the peer on a port from now on; whether that is possible."""
        try:
            server = open_server(port)
        except OSError as error:
            self.note(LISTENS, port, False, "", error.strerror or str(error))
            return False
        self.note(LISTENS, port, True, "", "")
        threading.Thread(target=self.serve, args=(server, port), daemon=True).start()
        return True

    def serve(self, server: socket.socket, port: int) -> None:
        """Answer each connection that sends the word with the word."""
        while True:
            visitor, _ = server.accept()
            with visitor:
                try:
                    visitor.settimeout(TRY_SECONDS)
                    if read_line(visitor, len(self.word)) == self.word:
                        visitor.sendall(self.word)
                        self.visited.add(port)
                except OSError:
                    continue

    def call(self, port: int) -> None:
        """Connect to the peer's port until it answers or the time is over."""
        address, detail = "", ""
        while True:
            try:
                for *_, where in socket.getaddrinfo(self.peer, port, type=socket.SOCK_STREAM):
                    address = str(where[0])
                    detail = self.visit(address, port)
                    if not detail:
                        self.note(CONNECTS, port, True, address, "")
                        return
            except OSError as error:
                detail = f"the name {self.peer} leads nowhere: {error.strerror or error}"
            if time.monotonic() >= self.until:
                self.note(CONNECTS, port, False, address, detail)
                return
            time.sleep(PAUSE_SECONDS)

    def visit(self, address: str, port: int) -> str:
        """Say the word at an address; why it was not answered, empty where it was."""
        try:
            with socket.create_connection((address, port), TRY_SECONDS) as connection:
                connection.sendall(self.word)
                heard = read_line(connection, len(self.word))
        except socket.timeout:
            return "no answer"
        except OSError as error:
            return error.strerror or str(error)
        return "" if heard == self.word else "another program answers there"

    def note(self, what: str, port: int, works: bool, address: str, detail: str) -> None:
        """Keep and print a result."""
        result = {"reach": what, "port": port, "works": works, "address": address, "detail": detail}
        self.results.append(result)
        # In one write: threads print at the same time.
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def open_server(port: int) -> socket.socket:
    """A listening socket of both address families, or of IPv4 alone where the node has no other. Raises OSError."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError:
            # Taken, or without IPv6: the next call tells.
            pass
    return socket.create_server(("", port))


def read_line(connection: socket.socket, most: int) -> bytes:
    """The bytes up to a line's end, at most so many. Raises OSError."""
    heard = b""
    while len(heard) < most and not heard.endswith(b"\n"):
        part = connection.recv(most - len(heard))
        if not part:
            break
        heard += part
    return heard


def main(words: Sequence[str]) -> int:
    """Play the side that the words name."""
    Trial(words[0], words[1], float(words[2])).play([int(word) for word in words[3:]])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
