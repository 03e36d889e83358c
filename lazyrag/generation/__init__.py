"""From hits to a cited answer: the context, the model, the citations."""
