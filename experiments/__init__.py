"""The paper's experiments and the other methods that Hedgerow is compared with; not part of the installed package.

Run from the root of the source tree: python -m experiments zebrafish -o zebrafish/
"""
