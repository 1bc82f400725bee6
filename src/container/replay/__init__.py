"""Run the real agent over a recorded log again, and find where two runs differ."""
