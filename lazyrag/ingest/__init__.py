"""From files to live node groups: compare, load, transform, index, make live."""
