/* Evaluation of tapes on vectors over lanes, for kernels. */
#pragma once
#include "../../compiled/templates/lanes/prelude.h"
#include "../../machine/include/tape.h"

/* Vectors from one component of an argument to the next, and from one block of lanes to the next. */
typedef struct {
    long component, block;
} places_t;

/* Evaluate a tape on `blocks` vectors of each component: vector j of component i is in[..][i * places.component + j * places.block], outputs
   likewise.  An output that overlaps an input gives wrong results. workspace: of tape_workspace vectors. */
void tape_run(const tape_t *tape, const V *const *in, V *const *out, V *workspace, int blocks, places_t places);

/* Workspace of tape_run in vectors. */
long tape_workspace(const tape_t *tape, int blocks);
