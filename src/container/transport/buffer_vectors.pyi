# What type checkers see of container.transport.buffer_vectors, which is compiled.
