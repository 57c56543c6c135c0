"""How much is computed at a time, so that memory does not grow with the number of rows."""

# Numbers in the largest array that a pass makes: 64 MiB in float32, which is small beside any
# machine's memory and large enough to be fast.
ELEMENTS = 2**24
# Numbers of hidden state that the GPU's kernels may keep for a gradient: 256 MiB in float32.
STORED_ELEMENTS = 2**26
# Numbers in the largest array of a mixture of Gaussians, by device. A processor is fastest while
# it stays in the cache; a GPU wants large products.
MIXTURE_ELEMENTS = {"cpu": 2**20, "cuda": 2**27}


def rows_at_a_time(numbers_per_row: int) -> int:
    """How many rows a pass may take that makes so many numbers of each."""
    return max(1, ELEMENTS // numbers_per_row)
