"""`python -m overspan.bridge.client.call FOLDER`: run the call that an executor left there, and leave its result."""

from __future__ import annotations

import os
import pickle
import sys
import traceback


def main(folder: str) -> int:
    """Run the call; 0 when it returned, 1 when it raised. The result appears whole or not at all."""
    with open(os.path.join(folder, "call.pickle"), "rb") as file:
        function, args, kwargs = pickle.load(file)
    try:
        outcome = (True, function(*args, **kwargs))
    except Exception as error:
        traceback.print_exc()
        outcome = (False, error)
    part = os.path.join(folder, "result.part")
    with open(part, "wb") as file:
        pickle.dump(outcome, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, os.path.join(folder, "result.pickle"))
    return 0 if outcome[0] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
