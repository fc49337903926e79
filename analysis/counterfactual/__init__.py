"""What would have happened otherwise: tasks, programs run in a sandbox, agents, re-execution, effects."""
