#!/usr/bin/env python3
"""Writes an interleaved 1F1B order, as Megatron-LM issues it, as torch's CSV.

  interleaved.py RANKS CHUNKS MICROBATCHES GROUP

Micro-batches go through the chunks of a rank in groups; the last group may be
shorter. If it is shorter than the number of ranks, the order may deadlock.
"""

import sys

p, v, m, g = map(int, sys.argv[1:])
table = [(mb, chunk) for first in range(0, m, g) for chunk in range(v)
         for mb in range(first, min(m, first + g))]
for r in range(p):
    forwards = [f"{c * p + r}F{mb}" for mb, c in table]
    backwards = [f"{(v - 1 - c) * p + r}B{mb}" for mb, c in table]
    warmup = min(m * v, 2 * (p - 1 - r) + (v - 1) * g)
    order = forwards[:warmup]
    for k, backward in enumerate(backwards):
        order += forwards[warmup + k:warmup + k + 1] + [backward]
    print(",".join(order))
