"""`python -m overspan.bridge.supervisor HOST_DIRECTORY`."""

import sys

from overspan.bridge.supervisor.host import main

sys.exit(main())
