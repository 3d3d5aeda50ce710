/* Arguments and results of the kernels of a phase: stage.h, rollout.h.  Arrays begin at the first knot of the phase unless stated otherwise.
   Results that are NULL are not stored. */
#pragma once

/* Data of a phase: its structure (structure_t of structure.h) and values that may change between solves. */
typedef struct {
    const void *structure;
    long substeps;
    const double *t, *dt, *p, *theta, *pg;
} stages_t;

/* Point of evaluation; the defect is x_next (-) nodes. */
typedef struct {
    const double *xs, *us, *nodes;
} point_t;

typedef struct {
    double *x_next, *d, *cost, *g;
} values_t;

/* A and B: derivatives of d.  stored: receives the substeps, for second derivatives at the same point. */
typedef struct {
    values_t values;
    double *A, *B, *lx, *lu, *gx, *gu, *Q, *S, *R;
    void *stored;
} first_t;

/* sigma; lam and y, NULL for none; stored: substeps stored by stage_first at the same point, or NULL. */
typedef struct {
    double sigma;
    const double *lam, *y;
    void *stored;
    double *xx, *ux, *uu;
} second_t;

/* Data of the final knot: the structure of a phase, and values that may change between solves. */
typedef struct {
    const void *structure;
    const double *t, *theta, *pg;
} end_t;

typedef struct {
    double *cost, *g, *lx, *gx, *Q;
} end_first_t;

/* Problem of a lane: its data in a phase and at the final knot, and its trajectory. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
    const double *xs, *us;
} seen_t;

/* Arguments of a rollout; arrays of the whole horizon of N knots.  lower, upper: NULL for none.  X, U, D: trajectories of all step lengths,
   contiguous.  ddx, ddu: second-order terms of a parabolic step, NULL for a straight one. */
typedef struct {
    long N, nonlinear;
    const double *xs, *us, *dx, *du, *K, *gaps, *lower, *upper, *alphas;
    const signed char *node;
    double *X, *U, *D;
    const double *ddx, *ddu;
} trials_t;

/* Segments of a rollout: segment k has knots start[k] .. stop[k] of the horizon and step length alphas[trial[k]]; cost[k] receives its running
   cost.  origin: first knot of the phase. */
typedef struct {
    long origin;
    const long *start, *stop, *trial;
    double *cost;
} parts_t;

/* A segment of a problem's rollout. */
typedef struct {
    const stages_t *stages;
    const trials_t *trials;
    const parts_t *parts;
    long part;
} rolled_t;
