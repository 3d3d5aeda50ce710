/* Gaps between P capsules and O cores at M configurations, one configuration in each lane.  distances.h contains the functions

       segment_box(p, d, size, D, w)     segment_cylinder(p, d, size, D, w)     segment_triangle(p, d, size, D, w)

   traced from dynamics_backends/rigid_body/geometry/distances.py, and WORK, the length of their workspace w. */
#pragma once
#include "distances.h"
#include "../../../dynamics_backends/compiled/templates/lanes/prelude.h"

typedef struct {
    long M, P, O;
    double reach;
    const double *ends;   /* M x P x 6: ends of the segments */
    const double *cores;  /* M x O x 12: rotations by rows, places */
    const double *sizes;  /* O x 3: half edges; radius, half length and 0; h, x, y of a triangle, |x| <= h */
    const double *thick;  /* P x O: sum of the radii */
    const int *kind;      /* O: 0 box, 1 cylinder, 2 triangle */
    const int *counts;    /* P x O: 0 for pairs without a gap */
    double *gaps;         /* M x P x O */
} gaps_t;

/* Load `size` numbers of each configuration into lanes; configurations are `stride` numbers apart, and the last one fills the lanes beyond `count`. */
ALWAYS_INLINE void gather(const double *from, long stride, long size, int count, V *restrict to)
{
    for (int l = 0; l < LANES; l++)
        for (long i = 0; i < size; i++) LANE(to[i], l) = from[(l < count ? l : count - 1) * stride + i];
}

EXPORT void capsule_gaps(const gaps_t *g)
{
    V w[WORK + 1];
    for (long n = 0; n < g->M; n += LANES) {
        const int count = g->M - n < LANES ? (int)(g->M - n) : LANES;
        for (long o = 0; o < g->O; o++) {
            V core[12], size[3];
            gather(g->cores + (n * g->O + o) * 12, g->O * 12, 12, count, core);
            for (int i = 0; i < 3; i++) size[i] = splat(g->sizes[3 * o + i]);
            for (long i = 0; i < g->P; i++) {
                double *out = g->gaps + (n * g->P + i) * g->O + o;
                const long step = g->P * g->O;
                if (!g->counts[i * g->O + o]) {
                    for (int l = 0; l < count; l++) out[l * step] = HUGE_VAL;
                    continue;
                }
                V ends[6], p[3], d[3], D, square = ZERO, length = ZERO;
                gather(g->ends + (n * g->P + i) * 6, g->P * 6, 6, count, ends);
                for (int j = 0; j < 3; j++) {
                    p[j] = d[j] = ZERO;
                    for (int k = 0; k < 3; k++) {
                        p[j] += core[3 * k + j] * (ends[k] - core[9 + k]);
                        d[j] += core[3 * k + j] * (ends[3 + k] - ends[k]);
                    }
                    length += d[j] * d[j];
                }
                for (int j = 0; j < 3; j++) {
                    const V half = g->kind[o] == 0   ? size[j]
                                   : g->kind[o] == 1 ? size[j < 2 ? 0 : 1]
                                   : j < 2           ? size[j == 0 ? 0 : 2]
                                                     : ZERO;
                    const V e = v_fmax(v_fabs(p[j] + 0.5 * d[j]) - half, ZERO);
                    square += e * e;
                }
                D = v_sqrt(square) - 0.5 * v_sqrt(length);
                const V thick = splat(g->thick[i * g->O + o]);
                int near = 0;
                for (int l = 0; l < LANES; l++) near |= LANE(D, l) - LANE(thick, l) < g->reach;
                if (near) {
                    if (g->kind[o] == 0) segment_box(p, d, size, &D, w);
                    else if (g->kind[o] == 1) segment_cylinder(p, d, size, &D, w);
                    else segment_triangle(p, d, size, &D, w);
                }
                for (int l = 0; l < count; l++) out[l * step] = LANE(D, l) - LANE(thick, l);
            }
        }
    }
}
