/* Recursive algorithms as loops over the tables of a robot: one kernel serves every robot. */
#pragma once

/* Tables of a kernel: of integers, of doubles, and tapes that it calls (tape_t). */
typedef struct {
    const int *const *ti;
    const double *const *td;
    const void *const *tapes;
} tables_t;

/* A recursive algorithm. tables: those of dynamics_backends/compiled/loops/kernel_data.py, ti[0] is head; in and out: all inputs and all
   outputs, vectors over lanes. workspace: vectors of workspace, aligned. */
typedef struct {
    const char *name;
    long (*workspace)(const int *head);
    void (*run)(const tables_t *tables, const void *in, void *out, void *workspace);
} loop_t;

/* Algorithm of this name, or NULL. */
const loop_t *loop_named(const char *name);
