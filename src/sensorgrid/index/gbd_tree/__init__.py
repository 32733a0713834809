"""The GBD-tree: which cells are stored, for whom, and what overlaps what."""

from sensorgrid.index.gbd_tree.interface import GbdTree, Hits, IndexEntry
from sensorgrid.index.gbd_tree.paged import PagedTree
from sensorgrid.index.gbd_tree.reference import ReferenceTree

__all__ = ["GbdTree", "Hits", "IndexEntry", "PagedTree", "ReferenceTree"]
