/* dynamics_partials by differences, in up to DIFFERENCES_POINTS directions at a time.  Python version:
   dynamics_backends/methods/finite_difference.py. */
#pragma once
#include "../lanes/function.h"
#include "../lanes/groups.h"
#include "../lanes/prelude.h"

/* value: x, u and further inputs, of `sizes` components each -> f.  factors: of the state's manifold.  n, m: entries of the tangent
   vector and of the controls; rows: of f.  central: 1 for central differences, 0 for forward ones.  step: multiplied by
   max(1, |x_k|) for controls and factors without group. */
typedef struct {
    function_t value;
    const factor_t *factors;
    const int *sizes;
    long inputs, n, m, rows, central;
    double step;
} differences_t;

/* Largest number of points that are evaluated in one call, if the value has run_blocks. */
#define DIFFERENCES_POINTS 8

/* Step h, `step` max(1, |x|), that is exact in x + h. */
static inline V difference_step(const differences_t *s, V x) { return (x + s->step * v_fmax(splat(1.0), v_fabs(x))) - x; }

/* Move the point x, u by `sign` times the step of direction k; returns the step. */
static V difference_moved(const differences_t *s, const V *const *in, long k, double sign, V *x, V *u)
{
    if (k >= s->n) {
        const V at = in[1][k - s->n], h = difference_step(s, at);
        u[k - s->n] = at + sign * h;
        return h;
    }
    const factor_t *f = s->factors;
    while (k >= f->v + f->nv) f++;
    if (!f->group) {
        const long i = f->q + k - f->v;
        const V at = in[0][i], h = difference_step(s, at);
        x[i] = at + sign * h;
        return h;
    }
    const V h = difference_step(s, ZERO);
    V d[f->nv], y[f->nq];
    for (int i = 0; i < f->nv; i++) d[i] = ZERO;
    d[k - f->v] = sign * h;
    f->group->integrate(in[0] + f->q, d, y);
    for (int i = 0; i < f->nq; i++) x[f->q + i] = y[i];
    return h;
}

EXPORT void partials_by_differences(const void *self, const V *const *in, V *const *out, V *w)
{
    const differences_t *s = self;
    const long n = s->n, m = s->m, rows = s->rows, most = s->value.run_blocks ? DIFFERENCES_POINTS : 1;
    long apart = 2 * rows; /* vectors of a point: its inputs, and f forward and backward */
    for (long i = 0; i < s->inputs; i++) apart += s->sizes[i];
    V memory[apart * most + 1], h[DIFFERENCES_POINTS];
    V *const forward = memory + apart - 2 * rows, *const backward = forward + rows;
    const V *at[s->inputs];
    call(s->value, in, OUT(out[0], NULL), w);
    for (long first = 0, points; first < n + m; first += points) {
        points = n + m - first < most ? n + m - first : most;
        for (int side = 0; side <= s->central; side++) {
            for (long b = 0; b < points; b++) {
                V *x = memory + b * apart, *u = x + s->sizes[0], *next = x;
                for (long i = 0; i < s->inputs; i++) {
                    if (!b) at[i] = next;
                    for (long j = 0; j < s->sizes[i]; j++) *next++ = in[i][j];
                }
                h[b] = difference_moved(s, in, first + b, side ? -1.0 : 1.0, x, u);
            }
            V *const f = side ? backward : forward;
            if (most > 1) s->value.run_blocks(s->value.self, at, OUT(f, NULL), w, points, apart);
            else call(s->value, at, OUT(f, NULL), w);
        }
        for (long b = 0, k = first; b < points; b++, k++)
            for (long i = 0; i < rows; i++) {
                const V f = forward[b * apart + i];
                const V slope = s->central ? (f - backward[b * apart + i]) / (2.0 * h[b]) : (f - out[0][i]) / h[b];
                *(k < n ? out[1] + i * n + k : out[2] + i * m + k - n) = slope;
            }
    }
}
