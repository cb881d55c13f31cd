"""`span top --web`: the terminal UI in a browser, behind tickets, a cookie and checks of where a request comes from."""
