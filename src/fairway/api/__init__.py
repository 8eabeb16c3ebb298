"""What users write, and the contracts between Fairway's parts. Pure: no I/O, and no imports of ours."""
