"""Spec 003, 验收标准: every test quotes the line it checks and says what is expected.

What can be measured only, the share by which a reranker or a hybrid is better and how long a question takes, is
measured by benchmarks/quality.py and benchmarks/answer.py, which CI runs; docs/quality.md and docs/performance.md have
the figures. Here the same systems answer a part of the same questions.
"""

from __future__ import annotations

QUESTIONS = 60
