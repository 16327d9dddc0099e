"""Record agent runs, score them locally, keep them all, share what is worth sharing."""
