"""Strategies for images larger than memory and for clusters: images are read in parts and computed shard by shard, and
an interrupted run is resumed."""
