"""Curriculum: how hard each task is for each model, and what to train on when.

attempts       how often a model did a task, from the runs of a workspace, and what is known of its tasks
pass_tables    the same from a user's own file
requirement    D_req with its interval, and how alike models rank tasks
predictor      D_req from features of a task, where it was never tried
joint          one difficulty out of D_req and D_orch, and whether the two interact
stages         warmup, individual, orchestration, integrated, by a named reference
schedule       what to draw at which progress, how evenly, and what is forgotten
"""
