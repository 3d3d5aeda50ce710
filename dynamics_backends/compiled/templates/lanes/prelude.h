/* Conversion between rows of doubles in memory and vectors over lanes. */
#pragma once
#include "vector_math.h"
#include "vectors.h"

#define MIX(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)

/* a[l][i] <- x[i][l] for LANES vectors x in memory. */
static inline void transpose(const V *restrict x, V *restrict a)
{
#if LANES == 8
    typedef double H __attribute__((vector_size(32), aligned(32)));
    const H *h = (const H *)x; /* memory operands load the halves: the shuffles dominate the cost */
    V b[8], c[8];
    for (int i = 0; i < 4; i++) {
        b[i] = MIX(h[2 * i], h[2 * i + 8], 0, 1, 2, 3, 4, 5, 6, 7);
        b[i + 4] = MIX(h[2 * i + 1], h[2 * i + 9], 0, 1, 2, 3, 4, 5, 6, 7);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 4; j += 2) {
            c[i + j] = MIX(b[i + j], b[i + j + 1], 0, 8, 2, 10, 4, 12, 6, 14);
            c[i + j + 1] = MIX(b[i + j], b[i + j + 1], 1, 9, 3, 11, 5, 13, 7, 15);
        }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + j] = MIX(c[i + j], c[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + j + 2] = MIX(c[i + j], c[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#elif LANES == 4
    V b0 = MIX(x[0], x[1], 0, 4, 2, 6), b1 = MIX(x[0], x[1], 1, 5, 3, 7);
    V b2 = MIX(x[2], x[3], 0, 4, 2, 6), b3 = MIX(x[2], x[3], 1, 5, 3, 7);
    a[0] = MIX(b0, b2, 0, 1, 4, 5);
    a[1] = MIX(b1, b3, 0, 1, 4, 5);
    a[2] = MIX(b0, b2, 2, 3, 6, 7);
    a[3] = MIX(b1, b3, 2, 3, 6, 7);
#endif
}

/* LANES rows of n doubles, `stride` doubles apart, to n vectors. Lanes beyond `count` repeat the last row. */
static void pack_strided(const double *restrict rows, long stride, long n, int count, V *restrict x)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    if (count == LANES)
        for (; i + LANES <= n; i += LANES) {
            V t[LANES];
            for (int l = 0; l < LANES; l++) memcpy(&t[l], rows + stride * l + i, sizeof(V));
            transpose(t, x + i);
        }
#endif
    for (int l = 0; l < LANES; l++) {
        const double *row = rows + stride * (l < count ? l : count - 1);
        for (long j = i; j < n; j++) ((double *)x)[j * LANES + l] = row[j];
    }
}

/* LANES rows of n doubles each <-> n vectors. Lanes beyond `count` repeat the last row when packed and are dropped when
   unpacked. */
static inline void pack(const double *restrict rows, long n, int count, V *restrict x) { pack_strided(rows, n, n, count, x); }

static void unpack(const V *restrict x, long n, int count, double *restrict rows)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    if (count == LANES)
        for (; i + LANES <= n; i += LANES) {
            V t[LANES];
            transpose(x + i, t);
            for (int l = 0; l < LANES; l++) memcpy(rows + n * l + i, &t[l], sizeof(V));
        }
#endif
    for (int l = 0; l < count; l++)
        for (long j = i; j < n; j++) rows[n * l + j] = ((const double *)x)[j * LANES + l];
}
