"""Faces of other systems on this package, and of this package on theirs."""
