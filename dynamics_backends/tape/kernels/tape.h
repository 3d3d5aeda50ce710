/* Evaluation of tapes on vectors over lanes, for kernels. */
#pragma once
#include "../../compiled/templates/lanes/prelude.h"
#include "../../machine/include/tape.h"

/* Evaluate a tape on `blocks` vectors: component j of input i is in[i][j * blocks .. (j + 1) * blocks), outputs likewise.
   An output that overlaps an input gives wrong results. room: workspace of tape_room. */
void tape_run(const tape_t *tape, const V *const *in, V *const *out, V *room, int blocks);

/* Workspace of tape_run in vectors. */
long tape_room(const tape_t *tape, int blocks);
