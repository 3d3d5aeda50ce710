/* What the kernels of slots share: how the phases of a problem and its LQ problems are computed, and sums over arrays.  Before this text stand
   lq_types.h and stage_types.h.

   Nothing here and in the kernels behind it knows the sizes of a problem: what does comes as functions, compiled for it.  So this is compiled once. */

/* The knots first .. last, whose dynamics and cost read `read` controls, in their library. */
typedef struct {
    long first, last, read;
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *room);
    void (*roll)(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *room);
    const stages_t *stages;
    void *room;
} phase_t;

typedef struct {
    void (*expand)(const end_t *s, const double *x, const end_first_t *out, void *room);
    void (*values)(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room);
    const end_t *end;
    void *room;
} final_t;

/* The sweeps over the knots of a problem: the functions of riccati.h for its sizes. */
typedef struct {
    long n, m;
    long (*riccati)(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const void *changes,
                    const lq_policy *policy);
    void (*adjoint)(const lq_problem *p, double *lambda, double *g);
    void (*stationarity)(const lq_problem *p, const double *K, double *lambda, double *g, double *size);
    int (*finite)(const lq_problem *p);
    void (*rollout)(const lq_problem *p, const lq_bounds *bounds, const lq_policy *policy, double *dx, double *du, double *change);
} sweeps_t;

/* A trajectory of the problem, dx (N + 1, n) and du (N, m). */
typedef struct {
    double *dx, *du;
} lq_step;

enum { DERIVATIVES, BACKWARD, ROLLOUT };
enum { NONE = -1 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reductions go in PARTS at once: a compiler may not change their order by itself. */
#define PARTS 16

static double largest(const double *x, long count)
{
    double part[PARTS] = {0.0}, most = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] = fabs(x[i + j]) > part[j] ? fabs(x[i + j]) : part[j];
    for (; i < count; i++) most = fabs(x[i]) > most ? fabs(x[i]) : most;
    for (int j = 0; j < PARTS; j++) most = part[j] > most ? part[j] : most;
    return most;
}

static double l1(const double *x, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += fabs(x[i + j]);
    for (; i < count; i++) sum += fabs(x[i]);
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static double dot(const double *x, const double *y, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += x[i + j] * y[i + j];
    for (; i < count; i++) sum += x[i] * y[i];
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static double clipped(double x, double lower, double upper)
{
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}

static void copy(double *to, const double *from, long count) { memcpy(to, from, sizeof(double) * count); }

static int any(const double *x, long count)
{
    for (long i = 0; i < count; i++)
        if (x[i] != 0.0) return 1;
    return 0;
}
