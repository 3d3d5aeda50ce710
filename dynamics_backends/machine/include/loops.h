/* Recursive algorithms as loops over the tables of a robot: one kernel serves every robot. */
#pragma once

/* Tables of a kernel: of integers, of doubles, and tapes that it calls (tape_t). */
typedef struct {
    const int *const *ti;
    const double *const *td;
    const void *const *tapes;
} tables_t;

/* A recursive algorithm. ti (integers) and td (doubles): tables of dynamics_backends/compiled/loops/kernel_data.py, ti[0] is head; in
   and out: arrays by rows, of which the knots first .. last - 1 are read and written. workspace: vectors of workspace, aligned.
   packed: the same on vectors over lanes, with all inputs in one array and all outputs in another. */
typedef struct {
    const char *name;
    long (*workspace)(const int *head);
    void (*run)(const int *const *ti, const double *const *td, const double *const *in, double *const *out, long first, long last,
                void *workspace);
    long (*packed_workspace)(const int *head);
    void (*packed)(const tables_t *tables, const void *in, void *out, void *workspace);
} loop_t;

/* Algorithm of this name, or NULL. */
const loop_t *loop_named(const char *name);
