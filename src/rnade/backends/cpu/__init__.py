"""The backend of the CPU: fused kernels compiled by numba, which `api` loads."""
