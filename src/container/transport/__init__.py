"""The seam: what carries messages, as abstract classes; buffers, fragments and idling over it."""
