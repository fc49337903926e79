"""The spans of a trace as a tree in one order: a parent before its children, then by start, depth and id.

Hides circles of parents (cut at their earliest span), parents that were never exported, missing and skewed clocks.
Nothing here is recursive or looks at a path twice: a chain of any length costs what a list costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analysis.readers.spans.nodes import Node


class Tree(NamedTuple):
    """Nodes in order, each with the place of its parent (-1: none that is here), and the ids of spans that were cut loose."""

    nodes: list[Node]
    cut: list[str]


def grown(nodes: Sequence[Node]) -> Tree:
    """Return the tree of the nodes; `parent`, `depth` and `since_ns` of each are set."""
    place = {node.event_id: n for n, node in enumerate(nodes)}
    above = [place.get(node.parent_id, -1) if node.parent_id is not None else -1 for node in nodes]
    cut = _cut_circles(nodes, above)
    for n in cut:
        nodes[n].extra["parent_span_id"], nodes[n].parent_id = nodes[n].parent_id, None
    below: list[list[int]] = [[] for _ in nodes]
    level: list[int] = []
    for n, parent in enumerate(above):
        (level if parent < 0 else below[parent]).append(n)
    depth = 0
    while level:
        for n in level:
            node, parent = nodes[n], above[n]
            base = nodes[parent].since_ns if parent >= 0 else -1
            node.depth, node.since_ns = depth, max(base, -1 if node.start_ns is None else node.start_ns)
        level = [child for n in level for child in below[n]]
        depth += 1
    ranked = sorted(range(len(nodes)), key=lambda n: _key(nodes[n]))
    new = [0] * len(nodes)
    for place_now, n in enumerate(ranked):
        new[n] = place_now
    for n, parent in enumerate(above):
        nodes[n].parent = new[parent] if parent >= 0 else -1
    return Tree([nodes[n] for n in ranked], sorted(nodes[n].event_id for n in cut))


def _key(node: Node) -> tuple[int, int, int, str]:
    return node.since_ns, node.depth, -1 if node.start_ns is None else node.start_ns, node.event_id


def _cut_circles(nodes: Sequence[Node], above: list[int]) -> list[int]:
    """Take the parent off the earliest span of each circle; return which ones those are."""
    seen = [0] * len(nodes)  # the walk that came by first
    cut = []
    for walk, start in enumerate(range(len(nodes)), 1):
        n = start
        while n >= 0 and not seen[n]:
            seen[n] = walk
            n = above[n]
        if n < 0 or seen[n] != walk:
            continue
        circle = [n]
        while (n := above[n]) != circle[0]:
            circle.append(n)
        first = min(circle, key=lambda n: (nodes[n].start_ns is None, nodes[n].start_ns or 0, nodes[n].event_id))
        above[first] = -1
        cut.append(first)
    return cut
