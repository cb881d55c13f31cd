"""The cluster's API: logins, connections, watches, calls, and what its refusals mean."""
