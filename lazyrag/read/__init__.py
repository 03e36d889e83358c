"""Reads of one state of a Document: nodes, windows, lists of documents, restricted views."""
