"""Table 1: five UCI data sets, and two studies of why it comes out as it does."""
