"""Adapters for other frameworks: the names of specification 004, LangChain, LlamaIndex, LazyLLM."""
