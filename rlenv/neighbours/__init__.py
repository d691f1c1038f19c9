"""What offers ours to other libraries."""
