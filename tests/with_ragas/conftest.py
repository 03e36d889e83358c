"""RAGAS is imported after this: it would report each use of a metric to its makers."""

import os

os.environ["RAGAS_DO_NOT_TRACK"] = "true"
