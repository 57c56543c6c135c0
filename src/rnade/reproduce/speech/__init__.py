"""Table 3 and Figure 2: windows of speech."""
