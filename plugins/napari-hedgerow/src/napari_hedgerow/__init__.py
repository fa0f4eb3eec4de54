"""Hedgerow in napari: paint a few strokes, and forests segment the rest of the image."""
