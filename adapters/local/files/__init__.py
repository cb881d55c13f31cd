"""Files of a run, as adapter and supervisor share them: plan, grant, orders, journal, logs; packed at the end."""
