"""Running an agent: its loop, its thread, its owner, several of them on one thread, and what each is made of."""
