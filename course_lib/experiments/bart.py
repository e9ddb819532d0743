"""The claims of lesson 16: which noise is best, and whether a denoiser classifies, summarises and translates."""
