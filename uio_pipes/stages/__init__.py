"""One stage a file: its parameters, its length rule, its node."""
