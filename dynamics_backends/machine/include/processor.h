/* Detection of the processor: a separate library compiled for the smallest instruction set. */
#pragma once

/* Index of the best instruction set in dynamics_backends/machine/library.py that the processor supports. */
int best_instruction_set(void);
