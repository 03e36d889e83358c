"""Files on disk: SQLite databases with migrations, and immutable array files."""
