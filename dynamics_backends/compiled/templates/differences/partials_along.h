/* dynamics_partials by numbers with one perturbation, one direction after the other. */
#pragma once
#include "../lanes/function.h"
#include "../lanes/prelude.h"

/* along: x, u, t, p, e -> f, slope: the value and its derivative in the direction e (n + m), a perturbation of size `step`.  n, m: entries of
   the tangent vector and of the controls; rows: of f. */
typedef struct {
    function_t along;
    long n, m, rows;
    double step;
} directions_t;

EXPORT void partials_along(const void *self, const V *const *in, V *const *out, V *w)
{
    const directions_t *s = self;
    const long n = s->n, m = s->m, rows = s->rows;
    V e[n + m + 1], slope[rows + 1];
    for (long k = 0; k < n + m; k++) e[k] = ZERO;
    for (long k = 0; k < n + m; k++) {
        e[k] = splat(s->step);
        call(s->along, IN(in[0], in[1], in[2], in[3], e), OUT(out[0], slope), w);
        e[k] = ZERO;
        for (long i = 0; i < rows; i++) *(k < n ? out[1] + i * n + k : out[2] + i * m + k - n) = slope[i] / s->step;
    }
}
