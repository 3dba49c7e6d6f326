"""The base of every certified search: problem, certificate, search, starts, checks."""
