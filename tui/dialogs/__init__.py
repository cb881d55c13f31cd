"""Dialogs: each names what it is about, and its default is to do nothing."""
