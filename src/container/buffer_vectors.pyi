# What type checkers see of container.buffer_vectors, which is compiled.
