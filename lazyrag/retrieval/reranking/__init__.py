"""The rerankers that ask a model, and what they have in common."""
