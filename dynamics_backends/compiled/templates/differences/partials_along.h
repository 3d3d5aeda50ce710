/* dynamics_partials by numbers with one perturbation, in up to DIFFERENCES_POINTS directions at a time. */
#pragma once
#include "../lanes/function.h"
#include "../lanes/prelude.h"
#include "partials_by_differences.h"

/* along: x, u, t, p, e of `sizes` components each -> f, slope: the value and its derivative in the direction e (n + m), a perturbation of
   size `step`.  n, m: entries of the tangent vector and of the controls; rows: of f. */
typedef struct {
    function_t along;
    const int *sizes;
    long inputs, n, m, rows;
    double step;
} directions_t;

EXPORT void partials_along(const void *self, const V *const *in, V *const *out, V *w)
{
    const directions_t *s = self;
    const long n = s->n, m = s->m, rows = s->rows, most = s->along.run_blocks ? DIFFERENCES_POINTS : 1;
    long apart = 2 * rows; /* vectors of a direction: the inputs, f and slope */
    for (long i = 0; i < s->inputs; i++) apart += s->sizes[i];
    V memory[apart * most + 1];
    const V *at[s->inputs];
    for (long b = 0; b < most; b++) {
        V *next = memory + b * apart;
        for (long i = 0; i < s->inputs; i++) {
            if (!b) at[i] = next;
            for (long j = 0; j < s->sizes[i]; j++) *next++ = i < s->inputs - 1 ? in[i][j] : ZERO;
        }
    }
    V *const f = memory + apart - 2 * rows, *const slope = f + rows, *const e = f - (n + m);
    for (long first = 0, points; first < n + m; first += points) {
        points = n + m - first < most ? n + m - first : most;
        for (long b = 0; b < points; b++) e[b * apart + first + b] = splat(s->step);
        call_blocks(s->along, s->inputs, 2, at, OUT(f, slope), w, points, apart);
        for (long b = 0, k = first; b < points; b++, k++) {
            e[b * apart + k] = ZERO;
            for (long i = 0; i < rows; i++) *(k < n ? out[1] + i * n + k : out[2] + i * m + k - n) = slope[b * apart + i] / s->step;
        }
    }
    for (long i = 0; i < rows; i++) out[0][i] = f[i];
}
