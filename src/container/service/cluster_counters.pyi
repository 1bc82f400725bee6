# What type checkers see of container.service.cluster_counters, which is compiled.
