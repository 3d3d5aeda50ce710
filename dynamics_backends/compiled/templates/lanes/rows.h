/* Conversion between rows of n doubles, one for each lane at any address, and n vectors. */
#pragma once
#include "prelude.h"

static void pack_rows(const double *const *rows, long n, V *restrict x)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    for (; i < n && n >= LANES; i += LANES) {
        V t[LANES];
        i = i < n - LANES ? i : n - LANES; /* the last block overlaps the one before */
        for (int l = 0; l < LANES; l++) memcpy(&t[l], rows[l] + i, sizeof(V));
        transpose(t, x + i);
    }
#endif
    for (; i < n; i++)
        for (int l = 0; l < LANES; l++) LANE(x[i], l) = rows[l][i];
}

static inline void unpack_rows(const V *restrict x, long n, double *const *rows)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    for (; i < n && n >= LANES; i += LANES) {
        V t[LANES];
        i = i < n - LANES ? i : n - LANES;
        transpose(x + i, t);
        for (int l = 0; l < LANES; l++) memcpy(rows[l] + i, &t[l], sizeof(V));
    }
#endif
    for (; i < n; i++)
        for (int l = 0; l < LANES; l++) rows[l][i] = LANE(x[i], l);
}
