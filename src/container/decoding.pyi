# What type checkers see of container.decoding, which is compiled.
