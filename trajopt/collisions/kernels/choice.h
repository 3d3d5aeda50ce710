/* Choice of the pairs of a link's capsules and of bodies that get a slot, at M configurations: see trajopt/collisions/library.py. */
#pragma once
#include "../../../dynamics_backends/compiled/templates/lanes/vectors.h"

typedef struct {
    long M, P, C, O;
    const double *gaps, *coarse;  /* M x P x O, and M x C x O of coarse capsules, or null */
    long link;                    /* index of the link's coarse capsule */
    long pieces, cores;
    const long *piece, *core;     /* indices of capsules and cores */
    long slots;
    double reach, far, spread, farther;
    double *values, *costs;       /* (pieces + 1) x cores */
    long *chosen;                 /* M x slots: indices in (pieces + 1) x cores, -1 for an empty slot */
} choice_t;

/* Gaps by pieces and cores; of a core far from the link's coarse capsule only the gap of that capsule counts.  Returns the number of rows. */
ALWAYS_INLINE long counted(const choice_t *g, long m)
{
    const long n = g->cores, rows = g->pieces + (g->coarse != 0);
    for (long j = 0; j < n; j++) {
        const double coarse = g->coarse ? g->coarse[(m * g->C + g->link) * g->O + g->core[j]] : -HUGE_VAL;
        double least = coarse;
        for (long i = 0; i < g->pieces; i++) {
            const double gap = g->gaps[(m * g->P + g->piece[i]) * g->O + g->core[j]];
            if (gap < least) least = gap;
            g->values[i * n + j] = coarse > g->far ? HUGE_VAL : gap;
        }
        if (g->coarse) g->values[g->pieces * n + j] = coarse > g->far ? least : HUGE_VAL;
    }
    return rows;
}

/* Add a penalty to the gap of the second capsule near a body, twice the penalty to the third, and so on. */
ALWAYS_INLINE void cost(const choice_t *g, long rows)
{
    const long n = g->cores;
    for (long j = 0; j < n; j++) {
        double least = HUGE_VAL;
        for (long i = 0; i < rows; i++) least = g->values[i * n + j] < least ? g->values[i * n + j] : least;
        const double step = g->spread + g->farther * (least < 0.0 ? 0.0 : least > g->reach ? g->reach : least);
        for (long i = 0; i < rows; i++) {
            const double own = g->values[i * n + j];
            long rank = 0;
            for (long k = 0; k < rows; k++) rank += g->values[k * n + j] < own || (g->values[k * n + j] == own && k < i);
            g->costs[i * n + j] = own + (double)rank * step;
        }
    }
}

EXPORT void chosen_pairs(const choice_t *g)
{
    for (long m = 0; m < g->M; m++) {
        const long rows = counted(g, m), all = rows * g->cores, most = g->slots < all ? g->slots : all;
        long *chosen = g->chosen + m * g->slots, known = 0;
        if (g->slots > 1) cost(g, rows);
        const double *costs = g->slots > 1 ? g->costs : g->values;
        for (long c = 0; c < all; c++) {
            if (!(g->values[c] < g->reach)) continue;
            if (known == most && !(costs[c] < costs[chosen[known - 1]])) continue;
            long at = known < most ? known++ : known - 1;
            for (; at > 0 && costs[c] < costs[chosen[at - 1]]; at--) chosen[at] = chosen[at - 1];
            chosen[at] = c;
        }
        for (long s = known; s < g->slots; s++) chosen[s] = -1;
    }
}
