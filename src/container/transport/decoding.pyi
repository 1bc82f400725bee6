# What type checkers see of container.transport.decoding, which is compiled.
