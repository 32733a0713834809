"""Mergeable partials, one family of functions per module.

``partials`` takes in a region (init and add in one), ``merge`` joins, ``finish`` gives the number. Merging is exactly
associative and commutative: whatever the tree, the bits are the same.
"""
