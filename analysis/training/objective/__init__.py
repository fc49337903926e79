"""L = L_policy + λ·L_orch inside the trainers people use: event credit becomes advantage on the event's own tokens.

The files here import each other relatively and a trainer only where it is used: a launch copies this folder beside its
plan, so that the trainer's environment needs nothing of Counterpoint.
"""
