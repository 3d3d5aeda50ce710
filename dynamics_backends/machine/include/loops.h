/* Recursive algorithms as loops over the tables of a robot: one kernel serves every robot. */
#pragma once

/* A recursive algorithm. ti (integers) and td (doubles): tables of dynamics_backends/compiled/loops/tables.py, ti[0] is head; in
   and out: arrays of the knots first .. last, by rows. room: vectors of workspace, aligned. */
typedef struct {
    const char *name;
    long (*room)(const int *head);
    void (*run)(const int *const *ti, const double *const *td, const double *const *in, double *const *out, long first, long last,
                void *room);
} loop_t;

/* Algorithm of this name, or NULL. */
const loop_t *loop_named(const char *name);
