"""``lakemark demo``: the whole tour on real data, with plain Spark, checked step by step."""

import warnings

# pyspark says at import which pandas it would like; the demo uses none.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
