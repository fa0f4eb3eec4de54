"""Strategies for images larger than memory and for many machines: read in parts, computed shard by shard, resumed."""
