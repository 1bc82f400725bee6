"""Clusters of whole nodes, simulated: archive, consensus module, container and clients, disks and network."""
