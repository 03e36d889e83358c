"""The service without its routes: configuration, access, sets, problems."""
