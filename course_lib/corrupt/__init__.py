"""What pretraining hides from a model: masked tokens, masked whole words, false next sentences.

Pure functions: the input stays as it was, and every draw comes from the `torch.Generator` passed in, so the
same generator state gives the same corruption. Letters: B batch, T positions.
"""

from course_lib.corrupt.base import IGNORE, Corrupted, generator
from course_lib.corrupt.formats import SentencePair, nsp_pairs
from course_lib.corrupt.masking import mask_documents, mask_tokens

__all__ = ["IGNORE", "Corrupted", "SentencePair", "generator", "mask_documents", "mask_tokens", "nsp_pairs"]
