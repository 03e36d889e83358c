"""Long calls: their progress, cancelling them, and blocks that an interrupt leaves whole."""
