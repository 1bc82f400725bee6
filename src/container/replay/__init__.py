"""A recorded log, executed again by the real agent; and where two executions differ."""
