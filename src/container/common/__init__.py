"""Helpers for every room: error texts, values, regular files, forks, logging; nothing about Aeron's streams."""
