"""Files that must survive a crash: the seam (`seam`) that archive and consensus module use, and its real side."""
