"""The behaviour of the first release, frozen: a change of the inside is right if nothing here
changes.

Two commits behave the same if, for the sample corpora on every store, all of this is equal:

- a Document holds the same: uids, texts, metadata, spans, terms, vectors, and fingerprints of
  definitions (`dumps`);
- retrievers give the same nodes, in the same order, with the same scores (`hits`), with every
  filter;
- restricted Documents do, too (`restricted`);
- `explain`, `trace` and `why_not` find the same; their wording has digests of its own, so that a
  sentence can change without hiding a change of what it says (`explanations`);
- a wrong call raises the same class of error (`test_errors`), and a stored Document opens
  (`test_stores`).

Only public names are used: what is imported from ``lazyrag``, and documented methods. `canonical`
turns results into text; where a public name changes on purpose, that file and the tables beside it
change, the golden files do not.

Keyword scores are compared with twelve digits. Scores in which products of vectors count are
rounded to six decimals, as their last bits depend on the machine's linear algebra; explanations are
rounded alike. Days on which a file was created or read, and times that something took, are not
compared. PDF files are not in the samples: what is read of them depends on the versions of
libraries.

Queries are compared by a digest for each block of twenty; the first ones are there in full, so that
a difference can be read. For another block run this on both commits and compare what it prints::

    python -m tests.behaviour.record --show "hybrid rrf / none" 7

A golden file is never edited. Where behaviour is to change, record it anew in a commit that says
so; read its diff::

    python -m tests.behaviour.record [name ...]
"""
