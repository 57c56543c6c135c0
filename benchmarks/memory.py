"""Peak memory of a log density in a fresh process: python -m benchmarks.memory DEVICE NAME ROWS.

Prints bytes beyond what was there before: the model, the rows, and all that a first call on a few
rows loads and compiles.
"""

import json
import sys
import warnings

import torch

from benchmarks.measure import peak_memory
from benchmarks.providers import Shape, make


def main() -> None:
    device, name, rows = sys.argv[1:]
    warnings.simplefilter("ignore")  # those of other libraries
    shape = Shape(63, 512, 10)
    density = make(name, shape, device).density
    x = torch.randn(int(rows), shape.D, generator=torch.Generator().manual_seed(1)).to(device)
    density(x[:100])
    print(json.dumps(peak_memory(lambda: density(x), device)))


if __name__ == "__main__":
    main()
