"""Which ways of working recur: traces as labelled graphs, the patterns that many of them share, and what those are worth.

graphs     a trace to a labelled graph (folding)   mining     frequent patterns and where they occur (search, ordered, kernels)
forms      when two whole runs are one             canonical  the id of a pattern
value      what patterns are worth (chance)        families   patterns and traces grouped and named (features, naming, conditions)
library    patterns kept and found again (matching)
"""
