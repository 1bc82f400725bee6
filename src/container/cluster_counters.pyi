# What type checkers see of container.cluster_counters, which is compiled.
