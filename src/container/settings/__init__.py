"""Every setting of a container, and where its value comes from."""
