"""The loops of the miner, over flat sequences of whole numbers: lists when run as they stand, arrays when compiled.

An extension of a pattern has a key, whose order is the DFS lexicographic order (Yan & Han 2002, "gSpan"): edges back to
the right-most path first, from its root on, then new nodes, from the end of the path on; then by type. With `n_path` nodes
on the path and `n_types` types, the key of an edge back to path node `slot` is `slot * n_types + type`, that of a new
node at it `(2 * n_path - 1 - slot) * n_types + type`. Where keys number the places of a table, types are counted from
the first that the label of the extended node has.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# No types below: the same source runs on lists and, compiled, on arrays.

from __future__ import annotations


def count(
    emb, k, path, least, n_open, root, max_steps, offsets, neighbours, kinds, low, graph_of, n_kinds, slots, begins,
    tally,
):  # fmt: skip
    """Count embeddings and graphs of every extension.

    emb : k nodes an embedding, those of one graph after each other
    least : for each path node the type of its edge to the next one, below which a new node there cannot be minimal
    n_open : how many of the path's nodes, from the root on, may be extended
    root : type of the first edge; edges of lesser types were dealt with
    max_steps : edges looked at in one graph, after which the rest of its embeddings is left out
    n_kinds : most types that one label has
    slots : place on the path of each pattern node, -1 for those off it
    begins : for each path node the first type that its label has
    tally : zeros; for each key how many embeddings, then for each key how many graphs, then for each key the last graph
        and 1, at the end whether embeddings were left out
    """
    n_path, n_keys = len(path), 2 * len(path) * n_kinds
    now, steps = -1, 0
    for base in range(0, len(emb), k):
        graph = graph_of[emb[base]]
        if graph != now:
            now, steps = graph, 0
        elif steps > max_steps:
            tally[3 * n_keys] = 1
            continue
        for slot in range(n_open):
            x = emb[base + path[slot]]
            is_end = slot == n_path - 1
            for t in range(offsets[x], offsets[x + 1]):
                kind = kinds[t]
                if low[kind] < root:
                    break
                steps += 1
                if not is_end and kind < least[slot]:
                    continue
                w = neighbours[t]
                inside = -1
                for q in range(k):
                    if emb[base + q] == w:
                        inside = q
                        break
                if inside < 0:
                    key = (2 * n_path - 1 - slot) * n_kinds + kind - begins[slot]
                elif is_end and slots[inside] >= 0:
                    key = slots[inside] * n_kinds + kind - begins[slot]
                else:
                    continue
                tally[key] += 1
                if tally[2 * n_keys + key] != graph + 1:
                    tally[2 * n_keys + key] = graph + 1
                    tally[n_keys + key] += 1


def fill(
    emb, k, path, least, n_open, root, max_steps, offsets, neighbours, kinds, low, graph_of, n_kinds, slots, begins,
    place, twins, caps, ends, held, held_in, origin, new, over,
):  # fmt: skip
    """Write down the embeddings of chosen extensions: which one was extended, and by which node (-1 by an edge back).

    place : number of the extension with this key, -1 for those not chosen
    twins : for each extension two pattern nodes of which the second must stand behind the first, -1 where none
    caps : most embeddings of each in one graph; `over` is set where there were more
    ends : where to write the next embedding of each, moved on
    """
    n_path = len(path)
    now, steps = -1, 0
    for base in range(0, len(emb), k):
        graph = graph_of[emb[base]]
        if graph != now:
            now, steps = graph, 0
        elif steps > max_steps:
            continue
        for slot in range(n_open):
            x = emb[base + path[slot]]
            is_end = slot == n_path - 1
            for t in range(offsets[x], offsets[x + 1]):
                kind = kinds[t]
                if low[kind] < root:
                    break
                steps += 1
                if not is_end and kind < least[slot]:
                    continue
                chosen = place[(2 * n_path - 1 - slot) * n_kinds + kind - begins[slot]]
                if chosen < 0 and not is_end:
                    continue
                w = neighbours[t]
                inside = -1
                for q in range(k):
                    if emb[base + q] == w:
                        inside = q
                        break
                if inside >= 0:
                    chosen = place[slots[inside] * n_kinds + kind - begins[slot]] if is_end and slots[inside] >= 0 else -1
                if chosen < 0:
                    continue
                second = twins[2 * chosen + 1]
                if second >= 0 and (w if second == k else emb[base + second]) < emb[base + twins[2 * chosen]]:
                    continue
                if held_in[chosen] != graph:
                    held_in[chosen], held[chosen] = graph, 0
                if held[chosen] >= caps[chosen]:
                    over[chosen] = 1
                    continue
                held[chosen] += 1
                at = ends[chosen]
                origin[at] = base // k
                new[at] = w if inside < 0 else -1
                ends[chosen] = at + 1


def twin(ci, cj, ct, n, path, n_path, is_new, found):
    """Find out whether the last branch equals the one before it: found = its slot on the path, both first nodes; or -1.

    Such branches can be swapped. Where the order of their first nodes is fixed, one embedding stands for all orders; and
    nothing grows from the second one any more, since its longer branch would have come first. `path` without its end where
    that `is_new`: the last edge leads to it.
    """
    found[0] = -1
    for slot in range(n_path - 1 + is_new):
        p, child = path[slot], cj[n - 1] if slot == n_path - 1 else path[slot + 1]
        begin = n - 1
        while not (cj[begin] == child and ci[begin] == p):
            begin -= 1
        size = n - begin
        before = begin - size
        if before < 0 or ci[before] != p or cj[before] < p:
            continue
        shift = child - cj[before]
        is_equal = True
        for q in range(size):
            a, b = before + q, begin + q
            i = ci[a] + shift if ci[a] > p else ci[a]
            j = cj[a] + shift if cj[a] > p else cj[a]
            if ct[a] != ct[b] or i != ci[b] or j != cj[b]:
                is_equal = False
                break
        if is_equal:
            found[0], found[1], found[2] = slot, cj[before], child
            return


def stands(rows, at, n_nodes, found):
    """Return whether the second of two equal branches stands behind the first."""
    first = second = -1
    for v in range(n_nodes):
        if rows[at + v] == found[1]:
            first = v
        if rows[at + v] == found[2]:
            second = v
    return found[0] < 0 or second > first


def first_rows(src, dst, typ, n_edges, n_nodes, reverse, first, rows):
    """Write down the ways to begin a code with an edge of the type `first`; return their number, -1 without room."""
    n_rows, room = 0, len(rows) // n_nodes
    for e in range(n_edges):
        for way in range(2):
            if (typ[e] if way == 0 else reverse[typ[e]]) != first:
                continue
            if n_rows == room:
                return -1
            for v in range(n_nodes):
                rows[n_rows * n_nodes + v] = -1
            rows[n_rows * n_nodes + (src[e] if way == 0 else dst[e])] = 0
            rows[n_rows * n_nodes + (dst[e] if way == 0 else src[e])] = 1
            n_rows += 1
    return n_rows


def sweep(
    src, dst, typ, n_edges, n_nodes, reverse, n_types, rows, n_rows, path, n_path, slots, tree, back, wanted, n_known,
    spare, found,
):  # fmt: skip
    """Look at all ways to go on with a code. Return the smallest key; or, given that, write down the ways that have it.

    tree, back : keys of the edges at the end of the path that the code has already: the one to it, the last one back
    wanted : the smallest key, -1 to look for it; then the number of ways is returned, -1 without room
    """
    best, n_kept, room = 2 * n_path * n_types, 0, len(spare) // n_nodes
    end = path[n_path - 1]
    for row in range(0, n_rows * n_nodes, n_nodes):
        for e in range(n_edges):
            a, b, kind, w = rows[row + src[e]], rows[row + dst[e]], typ[e], dst[e]
            if b == end or a < 0:
                a, b, kind, w = b, a, reverse[kind], src[e]
            if a < 0 or slots[a] < 0:
                continue
            if b < 0:
                key = (2 * n_path - 1 - slots[a]) * n_types + kind
            elif a == end and slots[b] >= 0:
                key = slots[b] * n_types + kind
                if key <= back or key == tree:
                    continue
            else:
                continue
            if wanted < 0:
                best = min(best, key)
            elif key == wanted:
                if n_kept == room:
                    return -1
                for v in range(n_nodes):
                    spare[n_kept * n_nodes + v] = rows[row + v]
                if b < 0:
                    spare[n_kept * n_nodes + w] = n_known
                if stands(spare, n_kept * n_nodes, n_nodes, found):
                    n_kept += 1
    return best if wanted < 0 else n_kept


def minimum(src, dst, typ, n_edges, n_nodes, reverse, n_types, is_test, ci, cj, ct, path, slots, rows, spare, found):
    """Write the minimum DFS code of a connected pattern to ci, cj, ct; return 1, or -1 where `rows` has too little room.

    As a test (the pattern is given as a DFS code), return 0 as soon as a smaller code is found. `rows` and `spare` hold for
    each way to embed the code so far the number of every pattern node in it, or -1. `found` is the `twin` of the whole.
    """
    first = typ[0]
    for e in range(n_edges):
        first = min(first, typ[e], reverse[typ[e]])
    if is_test and first < typ[0]:
        return 0
    n_rows = first_rows(src, dst, typ, n_edges, n_nodes, reverse, first, rows)
    if n_rows < 0:
        return -1
    for v in range(n_nodes):
        slots[v] = -1
    ci[0], cj[0], ct[0], path[0], path[1], slots[0], slots[1] = 0, 1, first, 0, 1, 0, 1
    n_path, n_known, tree, back, found[0] = 2, 2, reverse[first], -1, -1
    for step in range(1, n_edges):
        best = sweep(
            src, dst, typ, n_edges, n_nodes, reverse, n_types, rows, n_rows, path, n_path, slots, tree, back, -1, n_known,
            spare, found,
        )  # fmt: skip
        slot, kind = best // n_types, best % n_types
        is_back = slot < n_path
        if is_back:
            ci[step], cj[step], ct[step] = path[n_path - 1], path[slot], kind
        else:
            slot = 2 * n_path - 1 - slot
            ci[step], cj[step], ct[step] = path[slot], n_known, kind
        if is_test and (ci[step] != src[step] or cj[step] != dst[step] or kind != typ[step]):
            return 0
        twin(ci, cj, ct, step + 1, path, n_path if is_back else slot + 1, not is_back, found)
        n_rows = sweep(
            src, dst, typ, n_edges, n_nodes, reverse, n_types, rows, n_rows, path, n_path, slots, tree, back, best, n_known,
            spare, found,
        )  # fmt: skip
        if n_rows < 0:
            return -1
        for q in range(n_rows * n_nodes):
            rows[q] = spare[q]
        back = best if is_back else -1
        if not is_back:
            for q in range(slot + 1, n_path):
                slots[path[q]] = -1
            path[slot + 1], slots[n_known] = n_known, slot + 1
            tree, n_path, n_known = slot * n_types + reverse[kind], slot + 2, n_known + 1
    return 1
