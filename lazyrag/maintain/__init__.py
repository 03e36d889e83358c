"""Copies of a Document, and certificates of deletion."""
