"""Launchers: loading, transforming and embedding in other processes or on other machines; see
docs/scale.md.

Pure work goes out, one writer stays in. A launcher sends batches of ``load(file)``,
``transform(nodes)`` and ``embed(texts)``; the results are content-addressed, so that a batch that
is lost, or done twice, changes nothing.
"""
