"""Hostile files for everything that reads files, and commands that are killed, run out of disk or may not write.

`run.py` is the way in; `docs/reliability.md` says what is promised.
"""
