"""The ledger of a Document: what there is, what is live of it, and who may change that."""
