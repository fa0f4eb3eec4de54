"""The paper's comparisons: what Hedgerow is measured against, and on which images."""
