"""`RAGPipeline`: from a question to a cited answer, in event loops and threads."""
