"""What every room may use: errors' texts, values, regular files, forks, logging; nothing of Aeron's streams."""
