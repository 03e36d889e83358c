"""The routes of OpenAI's API: files, vector stores, chat, responses."""
