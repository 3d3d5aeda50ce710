/* Recursive algorithms as loops over the tables of a robot: one kernel serves every robot. */
#pragma once

/* Tables ti (integers) and td (doubles) of dynamics_backends/compiled/loops/tables.py, the first of ti being head; arrays in and out of
   knots first .. last, by rows.  room: vectors of workspace, aligned. */
typedef struct {
    const char *name;
    long (*room)(const int *head);
    void (*run)(const int *const *ti, const double *const *td, const double *const *in, double *const *out, long first, long last,
                void *room);
} loop_t;

/* The algorithm of this name, or NULL. */
const loop_t *loop_named(const char *name);
