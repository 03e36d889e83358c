"""The ledger: what is live, in one transaction, and the lease of the program that writes."""
