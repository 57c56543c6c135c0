"""How the GPU kernels are cut: rows and hidden units of a tile, warps, pipeline stages, programs.

Found by `benchmarks/bench_gpu_kernels.py --sweep` on an H200; any other choice is as right, only
slower. Matrix products need at least 16 of everything, and tiles are powers of two.
"""

from typing import NamedTuple


class Tiles(NamedTuple):
    """How a kernel is cut: rows and hidden units of a tile, warps and pipeline stages."""

    rows: int
    hidden: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        """What a kernel is compiled for, as launches name it."""
        rows, hidden, warps, stages = self
        return {"BB": rows, "HT": hidden, "num_warps": warps, "num_stages": stages}


# Blocks from which on a kernel with one program a block fills the chip (132 multiprocessors).
BLOCKS_TO_FILL = 128
# Programs that the kernels along the positions are cut into where rows and units give fewer.
STATE_PROGRAMS = 256
INPUT_PROGRAMS = 512
# Programs that the kernel of the weights' gradients is cut into where the dimensions give fewer,
# and how many times as many where there are more rows than MANY_ROWS.
WEIGHT_PROGRAMS = 264
MANY_ROWS, MORE_PROGRAMS = 64, 4
# Units that the products of a deeper network's layers take at a time.
LAYER_UNITS = 64
# Bytes of one dimension's V that are fetched ahead; more would leave room for one block only.
AHEAD_BYTES = 72 * 1024
# Models from which on the kernels for banks of small models are used, and what they take at most.
BANK_MODELS = 32
BANK_DIMENSIONS = 63
BANK_HIDDEN = 128
BANK_COMPONENTS = 32
# Components (a power of two) from which on they read V twice: kept on chip in the layouts of both
# products, it would leave room for one program only.
BANK_REREAD = 32
# Elements that a program of a sum over pieces takes.
UPDATE_BLOCK = 1024


def on_chip(H: int, NP: int, element_bytes: int) -> Tiles:
    """Tiles of the density and sampling kernels.

    16 rows to a block: Triton then splits the columns of z over the warps, where a larger block
    would compute each column in several of them.
    """
    hidden = min(64, max(16, power_of_two(H)))
    stages = 2 if cdiv(H, hidden) * hidden * NP * element_bytes <= AHEAD_BYTES else 1
    if H <= 128 and NP <= 64:
        return Tiles(64, hidden, 4, stages)
    return Tiles(16, hidden, 4 if H <= 512 and NP <= 128 else 8, stages)


def drawing_registers(tiles: Tiles, precision: str) -> int | None:
    """The most registers that a thread of the sampling kernel may take, or None for no limit.

    Left alone, the exact mode takes 255 and two programs share a multiprocessor; with 168 three
    do, and a few registers are spilled.
    """
    return 168 if precision == "exact" and tiles.rows == 16 and tiles.warps == 4 else None


def state(M: int, B: int, H: int) -> Tiles:
    """Tiles of `state_kernel`: smaller blocks of rows where there are few programs."""
    hidden = min(64, max(16, power_of_two(H)))
    few = M * cdiv(H, hidden) * cdiv(B, 32) < 16
    return Tiles(16 if B <= 16 or few else 32, hidden, 4, 2)


def output(M: int, B: int, D: int, H: int, NP: int) -> Tiles:
    """Tiles of `output_kernel`: small blocks of rows where there are few programs."""
    hidden = min(64 if NP <= 128 else 16, max(16, power_of_two(H)))
    if B <= 16 or M * D * cdiv(B, 32) < BLOCKS_TO_FILL:
        return Tiles(16, hidden, 8, 3)
    return Tiles(32, hidden, 4 if NP <= 128 else 8, 3)


def weight(B: int, H: int, NP: int) -> Tiles:
    """Tiles of `weight_kernel`; more stages where a program takes many tiles."""
    hidden = min(64 if NP <= 128 else 16, max(16, power_of_two(H)))
    return Tiles(16 if B <= 16 else 32, hidden, 4 if NP <= 128 else 8, 3 if H > 512 else 2)


def weight_programs(B: int) -> int:
    """Programs of `weight_kernel` that are wanted for so many rows."""
    return WEIGHT_PROGRAMS * (MORE_PROGRAMS if B > MANY_ROWS else 1)


def inputs(B: int, H: int) -> Tiles:
    """Tiles of `input_kernel`: one warp, so that sums over rows need no exchange between warps."""
    return Tiles(16 if B <= 16 else 32, 16, 1, 4)


def bank(B: int, *, gradient: bool) -> Tiles:
    """Tiles of `bank_kernel`, which takes all hidden units at once."""
    return Tiles(16 if gradient or B <= 16 else 32 if B <= 32 else 64, 0, 4, 1)


def layer(B: int, H: int, precision: str) -> Tiles:
    """Tiles of a deeper network's layers: two programs share a multiprocessor."""
    rows, hidden = (min(128, max(16, power_of_two(n))) for n in (B, H))
    if precision == "bf16":
        return Tiles(rows, hidden, 4, 3)
    return Tiles(min(64, rows), min(64, hidden), 4, 2)  # float32 takes twice the room


def position_chunks(D: int, programs: int, wanted: int) -> tuple[int, int]:
    """Positions in a chunk and number of chunks, to make `wanted` programs out of `programs`."""
    chunk = cdiv(D, min(D, max(1, wanted // programs)))
    return chunk, cdiv(D, chunk)


def cdiv(n: int, size: int) -> int:
    """How many pieces of `size` cover n."""
    return -(-n // size)


def power_of_two(n: int) -> int:
    """The smallest power of two at or above n."""
    return 1 << (n - 1).bit_length()
