/* Evaluation of a function for many rows. */
#pragma once
#include "function.h"
#include "prelude.h"
#include "rows.h"

/* sizes: components of each input, then of each output. */
typedef struct {
    function_t function;
    const int *sizes;
    long inputs, outputs;
} rows_t;

/* Workspace of function_rows in vectors, before that of the function. */
EXPORT long function_rows_workspace(const rows_t *s)
{
    long sum = 0;
    for (long i = 0; i < s->inputs + s->outputs; i++) sum += s->sizes[i];
    return sum;
}

/* in: contiguous rows of each input; out: rows of each output, `strides` doubles apart.  Lanes behind the last row repeat it. */
EXPORT void function_rows(const rows_t *s, const double *const *in, double *const *out, const long *strides, long first, long last,
                          V *workspace)
{
    const V *x[s->inputs];
    V *y[s->outputs], *next = workspace, *const w = workspace + function_rows_workspace(s);
    const int *const results = s->sizes + s->inputs;
    for (long i = 0; i < s->inputs; next += s->sizes[i++]) x[i] = next;
    for (long i = 0; i < s->outputs; next += results[i++]) y[i] = next;
    for (long at = first; at < last; at += LANES) {
        const int count = last - at < LANES ? last - at : LANES;
        for (long i = 0; i < s->inputs; i++) pack(in[i] + at * s->sizes[i], s->sizes[i], count, (V *)x[i]);
        call(s->function, x, y, w);
        for (long i = 0; i < s->outputs; i++) {
            double *rows[LANES];
            for (int l = 0; l < LANES; l++) rows[l] = out[i] + (at + (l < count ? l : count - 1)) * strides[i];
            unpack_rows(y[i], results[i], rows);
        }
    }
}
