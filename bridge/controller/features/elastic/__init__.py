"""Elastic tasks: members that come and go while their group runs."""
