"""The backend of the GPU: Triton kernels. Triton is imported by the first launch, not here."""
