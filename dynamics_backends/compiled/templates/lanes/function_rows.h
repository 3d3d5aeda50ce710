/* Evaluation of a function for many rows. */
#pragma once
#include <stddef.h>
#include "function.h"
#include "prelude.h"

/* Most blocks of lanes in one call of a function that has run_blocks. */
#define MOST_BLOCKS 8

/* sizes: components of each input, then of each output. */
typedef struct {
    function_t function;
    const int *sizes;
    long inputs, outputs;
} rows_t;

/* Vectors of the arguments and results of one block. */
static long row_vectors(const rows_t *s)
{
    long sum = 0;
    for (long i = 0; i < s->inputs + s->outputs; i++) sum += s->sizes[i];
    return sum;
}

static long most_blocks(const rows_t *s) { return s->function.run_blocks ? MOST_BLOCKS : 1; }

/* Workspace of function_rows in vectors, before that of the function. */
EXPORT long function_rows_workspace(const rows_t *s) { return row_vectors(s) * most_blocks(s); }

/* in: rows of each input, `strides` doubles apart; out: contiguous rows of each output.  Lanes and blocks behind the last row repeat it. */
EXPORT void function_rows(const rows_t *s, const double *const *in, const ptrdiff_t *strides, double *const *out, long first, long last,
                          V *workspace)
{
    const function_t f = s->function;
    const long apart = row_vectors(s), most = most_blocks(s);
    const int *const results = s->sizes + s->inputs;
    const V *x[s->inputs + 1];
    V *y[s->outputs + 1], *next = workspace, *const w = workspace + apart * most;
    for (long i = 0; i < s->inputs; next += s->sizes[i++]) x[i] = next;
    for (long i = 0; i < s->outputs; next += results[i++]) y[i] = next;
    for (long at = first, blocks; at < last; at += blocks * LANES) {
        const long rows = last - at, left = (rows + LANES - 1) / LANES;
        for (blocks = 1; blocks < most && 3 * blocks <= 2 * left;) blocks *= 2; /* 3, 6 and 7 are rounded up, which is faster */
        for (long b = 0; b < blocks; b++) {
            const long from = b * LANES < rows ? b * LANES : rows - 1, count = rows - from < LANES ? rows - from : LANES;
            for (long i = 0; i < s->inputs; i++)
                pack_strided(in[i] + (at + from) * strides[i], strides[i], s->sizes[i], count, (V *)x[i] + b * apart);
        }
        if (f.run_blocks) f.run_blocks(f.self, x, y, w, blocks, apart);
        else call(f, x, y, w);
        for (long b = 0, count; b < blocks && (count = rows - b * LANES) > 0; b++)
            for (long i = 0; i < s->outputs; i++)
                unpack(y[i] + b * apart, results[i], count < LANES ? count : LANES, out[i] + (at + b * LANES) * results[i]);
    }
}
