"""``lakemark demo``: a tour on real data with plain Spark, checked step by step."""

import warnings

# At import pyspark warns about its preferred version of pandas, which the demo does not use.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
