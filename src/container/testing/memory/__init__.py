"""A member in memory: a service under the real agent over a seam of memory; checks and strategies on it."""
