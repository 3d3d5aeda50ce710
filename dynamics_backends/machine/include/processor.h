/* The processor that runs this: a library of its own, for the least instruction set. */
#pragma once

/* The number of the best instruction set of dynamics_backends/machine/instruction_sets.py that the processor has. */
int best_instruction_set(void);
