/* Value and partial derivatives by differences of many rows.  Include partials_by_differences.h before this file. */

/* Workspace of differences_rows in vectors, before that of the value. */
EXPORT long differences_workspace(const differences_t *s)
{
    long numbers = s->rows * (1 + s->n + s->m);
    for (long i = 0; i < s->inputs; i++) numbers += s->sizes[i];
    return numbers;
}

/* in: rows of each input; out: rows of f, fx and fu. */
EXPORT void differences_rows(const differences_t *s, const double *const *in, double *const *out, long first, long last, V *workspace)
{
    const long sizes[] = {s->rows, s->rows * s->n, s->rows * s->m};
    const V *x[s->inputs];
    V *y[3], *w = workspace + differences_workspace(s);
    for (long at = first; at < last; at += LANES) {
        const int count = last - at < LANES ? last - at : LANES;
        V *next = workspace;
        for (long i = 0; i < s->inputs; i++) {
            pack(in[i] + at * s->sizes[i], s->sizes[i], count, next);
            x[i] = next;
            next += s->sizes[i];
        }
        for (int i = 0; i < 3; i++) {
            y[i] = next;
            next += sizes[i];
        }
        partials_by_differences(s, x, y, w);
        for (int i = 0; i < 3; i++) unpack(y[i], sizes[i], count, out[i] + at * sizes[i]);
    }
}
