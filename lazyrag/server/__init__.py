"""The service: Documents over HTTP. Needs the extra ``server``; nothing else of the package imports it."""
