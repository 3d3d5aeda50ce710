/* dynamics_partials by differences, one direction after the other.  Python version: dynamics_backends/methods/finite_difference.py.  Include
   function.h and groups.h before this file. */

/* value: x, u and further inputs, of `sizes` components each -> f.  together: evaluates the value at several points, whose components are
   neighbors in all arrays; or NULL.  factors: of the state's manifold.  n, m: entries of the tangent vector and of the controls; rows: of
   f.  central: 1 for central differences, 0 for forward ones.  step: relative step. */
typedef struct {
    function_t value;
    void (*together)(const void *self, const V *const *in, V *const *out, V *w, int points);
    const factor_t *factors;
    const int *sizes;
    long inputs, n, m, rows, central;
    double step;
} differences_t;

/* Largest number of points that are evaluated together. */
#define DIFFERENCES_POINTS 8

/* Step h that is exact in x + h. */
static inline V difference_step(const differences_t *s, V x) { return (x + s->step * v_fmax(splat(1.0), v_fabs(x))) - x; }

/* Move one of several points, x and u, by `sign` times the step of direction k; returns the step. */
static V difference_moved(const differences_t *s, const V *const *in, long k, double sign, V *x, V *u, long points)
{
    if (k >= s->n) {
        const V at = in[1][k - s->n], h = difference_step(s, at);
        u[(k - s->n) * points] = at + sign * h;
        return h;
    }
    const factor_t *f = s->factors;
    while (k >= f->v + f->nv) f++;
    if (!f->group) {
        const long i = f->q + k - f->v;
        const V at = in[0][i], h = difference_step(s, at);
        x[i * points] = at + sign * h;
        return h;
    }
    const V h = difference_step(s, ZERO);
    V d[f->nv], y[f->nq];
    for (int i = 0; i < f->nv; i++) d[i] = ZERO;
    d[k - f->v] = sign * h;
    f->group->integrate(in[0] + f->q, d, y);
    for (int i = 0; i < f->nq; i++) x[(f->q + i) * points] = y[i];
    return h;
}

EXPORT void partials_by_differences(const void *self, const V *const *in, V *const *out, V *w)
{
    const differences_t *s = self;
    const long n = s->n, m = s->m, rows = s->rows, most = s->together ? DIFFERENCES_POINTS : 1;
    long numbers = 1;
    for (long i = 0; i < s->inputs; i++) numbers += s->sizes[i] * most;
    V memory[numbers], ahead[rows * most + 1], behind[rows * most + 1], h[DIFFERENCES_POINTS];
    const V *at[s->inputs];
    call(s->value, in, OUT(out[0], NULL), w);
    for (long first = 0, points; first < n + m; first += points) {
        points = n + m - first < most ? n + m - first : most;
        for (int side = 0; side <= s->central; side++) {
            V *f = side ? behind : ahead, *x = memory, *u = x + s->sizes[0] * points, *next = memory;
            for (long i = 0; i < s->inputs; i++) {
                at[i] = next;
                for (long j = 0; j < s->sizes[i]; j++)
                    for (long b = 0; b < points; b++) *next++ = in[i][j];
            }
            for (long b = 0; b < points; b++) h[b] = difference_moved(s, in, first + b, side ? -1.0 : 1.0, x + b, u + b, points);
            if (s->together) s->together(s->value.self, at, OUT(f, NULL), w, points);
            else call(s->value, at, OUT(f, NULL), w);
        }
        for (long b = 0, k = first; b < points; b++, k++)
            for (long i = 0; i < rows; i++) {
                const V f = ahead[i * points + b];
                const V slope = s->central ? (f - behind[i * points + b]) / (2.0 * h[b]) : (f - out[0][i]) / h[b];
                *(k < n ? out[1] + i * n + k : out[2] + i * m + k - n) = slope;
            }
    }
}
