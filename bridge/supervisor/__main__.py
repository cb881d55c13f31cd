"""`python -m overspan.bridge.supervisor HOST_DIRECTORY`, or an entry of the module `steps.entry` and its words."""

import sys

from overspan.bridge.supervisor.host import main
from overspan.bridge.supervisor.steps import entry

sys.exit(entry.main(sys.argv[1:]) if sys.argv[1] in entry.ENTRIES else main())
