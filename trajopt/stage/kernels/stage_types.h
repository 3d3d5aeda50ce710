/* What the kernels of a phase take and give: stage.h, rollout.h.  Arrays begin at the first knot of the phase unless said; what is NULL
   among the results is not asked for. */

/* What a phase knows: the tables of its dynamics, and values that may change between solves. */
typedef struct {
    const int *const *ti;
    const double *const *td;
    long substeps;
    const double *t, *dt, *p, *theta, *pg;
} stages_t;

/* Where it is evaluated; nodes: to which x_next is compared. */
typedef struct {
    const double *xs, *us, *nodes;
} point_t;

typedef struct {
    double *x_next, *d, *cost, *g;
} values_t;

/* A and B are those of d.  kept: the substeps, for second derivatives at the same point. */
typedef struct {
    values_t values;
    double *A, *B, *lx, *lu, *gx, *gu, *Q, *S, *R;
    void *kept;
} first_t;

/* What the final knot knows. */
typedef struct {
    const double *t, *theta, *pg;
} end_t;

typedef struct {
    double *cost, *g, *lx, *gx, *Q;
} end_first_t;

/* One of several problems side by side: its values in a phase and at the end, and its trajectory. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
    const double *xs, *us;
} seen_t;

/* Arrays of the whole horizon of N knots.  lower, upper: NULL for none.  X, U, D: trajectories of all step lengths, one after the other.
   ddx, ddu: how the step bends, NULL for a straight one. */
typedef struct {
    long N, nonlinear;
    const double *xs, *us, *dx, *du, *K, *gaps, *lower, *upper, *alphas;
    const signed char *node;
    double *X, *U, *D;
    const double *ddx, *ddu;
} trials_t;

/* Part k has the knots start[k] .. stop[k] of the horizon and the step length alphas[trial[k]]; cost[k] becomes its running cost.
   origin: the first knot of the phase. */
typedef struct {
    long origin;
    const long *start, *stop, *trial;
    double *cost;
} parts_t;

/* A part of a problem's roll-out. */
typedef struct {
    const stages_t *stages;
    const trials_t *trials;
    const parts_t *parts;
    long part;
} rolled_t;

/* A step of length alpha along (dx, du) that is tried for one of several problems side by side: where its trajectory X, U and the gaps D go, and its cost, to
   which that of a phase, or of the end, is added. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
    const double *xs, *us, *dx, *du;
    double alpha, *X, *U, *D, *cost;
} tried_t;
