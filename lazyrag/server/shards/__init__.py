"""Sets on several machines: gateways to shards, shards, and replicas."""
