"""`span top --web`: the terminal UI in a browser, behind invitations, a cookie and checks of who asks."""
