"""NADE and FVSBN on binary data."""
