"""Table 2 and Figures 1 and 3: patches of natural images."""
