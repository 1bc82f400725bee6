# What type checkers see of container.aeron.keepalive, which is compiled.
