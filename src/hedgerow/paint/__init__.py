"""A page to paint on: a server for one person on one machine, and what it keeps of what was painted."""
