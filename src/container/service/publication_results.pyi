# What type checkers see of container.service.publication_results, which is compiled.
