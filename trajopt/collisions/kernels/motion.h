/* Bounds on distances along a motion of M times, for trajopt/collisions/mesh_motion.py.  Rotations are row-major. */
#pragma once
#include "../../../dynamics_backends/compiled/templates/lanes/vectors.h"

/* Center and half edges (M x 4 x 3) of a box that moves with R, p, in the frame R_base, p_base; columns (4 x 3): in the frame R, p.  R_base and p_base are
   null for the ground. */
EXPORT void box_motion(long M, const double *R, const double *p, const double *R_base, const double *p_base, const double *columns, double *boxes)
{
    for (long m = 0; m < M; m++, R += 9, p += 3, boxes += 12) {
        for (int c = 0; c < 4; c++) {
            double v[3];
            for (int i = 0; i < 3; i++) {
                v[i] = R[3 * i] * columns[3 * c] + R[3 * i + 1] * columns[3 * c + 1] + R[3 * i + 2] * columns[3 * c + 2];
                if (c == 0) v[i] += p_base ? p[i] - p_base[3 * m + i] : p[i];
            }
            for (int i = 0; i < 3; i++)
                boxes[3 * c + i] =
                    R_base ? R_base[9 * m + i] * v[0] + R_base[9 * m + 3 + i] * v[1] + R_base[9 * m + 6 + i] * v[2] : v[i];
        }
    }
}

ALWAYS_INLINE double length3(const double *a, const double *b)
{
    const double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return sqrt(x * x + y * y + z * z);
}

ALWAYS_INLINE double along3(const double *n, const double *a, const double *b)
{
    return n[0] * (a[0] - b[0]) + n[1] * (a[1] - b[1]) + n[2] * (a[2] - b[2]);
}

/* Raise the lower bounds at times first..last of a distance that is `apart` at time k.  The bound is `apart` minus the motion of the box along the normal of a
   separating plane or, if the normal is null, minus the displacement of any of its points.  other (M x 3): places of the second shape, null if it rests. */
EXPORT void raise_bounds(const double *boxes, const double *other, long k, long first, long last, const double *normal, double apart, double *lower)
{
    const double *here = boxes + 12 * k;
    for (long m = first; m < last; m++) {
        const double *box = boxes + 12 * m;
        double nearer = 0.0;
        if (normal) {
            for (int c = 0; c < 4; c++) {
                const double d = along3(normal, box + 3 * c, here + 3 * c);
                nearer += c == 0 ? d : fabs(d);
            }
            if (other) nearer -= along3(normal, other + 3 * m, other + 3 * k);
        } else {
            for (int c = 0; c < 4; c++) nearer += length3(box + 3 * c, here + 3 * c);
            if (other) nearer += length3(other + 3 * m, other + 3 * k);
        }
        if (apart - nearer > lower[m]) lower[m] = apart - nearer;
    }
}

/* Bounds (blocks) on the displacement of any point of a ball from the middle of each block of times: |a| + |b| <= sqrt(2 (a^2 + b^2)). */
EXPORT void ball_motion(long M, long block, const double *R, const double *p, const double *center, double weight, const long *middle, double *moved)
{
    for (long b = 0; b * block < M; b++) {
        const double *R0 = R + 9 * middle[b], *p0 = p + 3 * middle[b];
        double most = 0.0;
        for (long m = b * block; m < M && m < (b + 1) * block; m++) {
            const double *Rm = R + 9 * m, *pm = p + 3 * m;
            double turn = 0.0, way = 0.0;
            for (int i = 0; i < 3; i++) {
                double step = pm[i] - p0[i];
                for (int j = 0; j < 3; j++) {
                    const double d = Rm[3 * i + j] - R0[3 * i + j];
                    step += d * center[j];
                    turn += d * d;
                }
                way += step * step;
            }
            const double square = way + weight * weight * turn;
            if (square > most) most = square;
        }
        moved[b] = sqrt(2.0 * most);
    }
}

/* Distance of aligned boxes from their gaps along the axes; if they overlap, the smallest overlap, negative. */
ALWAYS_INLINE double outside3(const double *gaps)
{
    double most = gaps[0] > gaps[1] ? gaps[0] : gaps[1], square = 0.0;
    if (gaps[2] > most) most = gaps[2];
    if (!(most > 0.0)) return most;
    for (int i = 0; i < 3; i++) square += gaps[i] > 0.0 ? gaps[i] * gaps[i] : 0.0;
    return sqrt(square);
}

/* Lower bound on the distance of a box with rotation R about its center from an aligned box with corners low and high, from separating axes of both. */
ALWAYS_INLINE double boxes_apart(const double *center, const double *R, const double *half, const double *low, const double *high)
{
    double gaps[3], size[3], from[3];
    int ends = 1;
    for (int i = 0; i < 3; i++) {
        const double reach = fabs(R[3 * i]) * half[0] + fabs(R[3 * i + 1]) * half[1] + fabs(R[3 * i + 2]) * half[2];
        const double below = low[i] - center[i] - reach, above = center[i] - reach - high[i];
        gaps[i] = below > above ? below : above;
        ends &= isfinite(high[i] - low[i]) != 0;
    }
    const double found = outside3(gaps);
    if (!ends) return found;
    for (int i = 0; i < 3; i++) size[i] = 0.5 * (high[i] - low[i]), from[i] = center[i] - 0.5 * (high[i] + low[i]);
    for (int j = 0; j < 3; j++) {
        gaps[j] = fabs(from[0] * R[j] + from[1] * R[3 + j] + from[2] * R[6 + j]) - half[j];
        for (int i = 0; i < 3; i++) gaps[j] -= size[i] * fabs(R[3 * i + j]);
    }
    const double turned = outside3(gaps);
    return found > turned ? found : turned;
}

typedef struct {
    long blocks, pairs, parts, count; /* count: bodies of the scene; seconds below it are bodies, others are parts */
    double close;                     /* pairs with closer balls get a bound from boxes */
    const long *firsts, *seconds;     /* pairs */
    const long *rows_first, *rows_second; /* pairs: rows of moved */
    const double *centers, *turns;    /* blocks x parts x 3, blocks x parts x 9 */
    const double *radii, *halves;     /* parts, parts x 3 */
    const double *places, *turned;    /* count x blocks x 3, count x 9 */
    const double *low, *high;         /* count x 3 */
    const double *moved;              /* rows x blocks */
    double *bounds;                   /* blocks x pairs */
} bounds_t;

/* c = a' b for rotations. */
ALWAYS_INLINE void turned_back(const double *a, const double *b, double *c)
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) c[3 * i + j] = a[i] * b[j] + a[3 + i] * b[3 + j] + a[6 + i] * b[6 + j];
}

EXPORT void block_bounds(const bounds_t *g)
{
    for (long b = 0; b < g->blocks; b++) {
        for (long n = 0; n < g->pairs; n++) {
            const long i = g->firsts[n], o = g->seconds[n], j = o - g->count;
            const double *own = g->centers + 3 * (b * g->parts + i), *turn = g->turns + 9 * (b * g->parts + i);
            const double *base = j < 0 ? g->places + 3 * (o * g->blocks + b) : g->centers + 3 * (b * g->parts + j);
            const double *axes = j < 0 ? g->turned + 9 * o : g->turns + 9 * (b * g->parts + j);
            double away[3], local[3], R[9], gaps[3], gap;
            for (int c = 0; c < 3; c++) away[c] = own[c] - base[c];
            for (int c = 0; c < 3; c++) local[c] = away[0] * axes[c] + away[1] * axes[3 + c] + away[2] * axes[6 + c];
            if (j < 0) {
                for (int c = 0; c < 3; c++) {
                    const double below = g->low[3 * o + c] - local[c], above = local[c] - g->high[3 * o + c];
                    gaps[c] = below > above ? below : above;
                }
                gap = outside3(gaps) - g->radii[i];
            } else {
                gap = sqrt(away[0] * away[0] + away[1] * away[1] + away[2] * away[2]) - g->radii[i] - g->radii[j];
            }
            if (gap < g->close) {
                double low[3], high[3];
                for (int c = 0; c < 3; c++) {
                    low[c] = j < 0 ? g->low[3 * o + c] : -g->halves[3 * j + c];
                    high[c] = j < 0 ? g->high[3 * o + c] : g->halves[3 * j + c];
                }
                turned_back(axes, turn, R);
                gap = boxes_apart(local, R, g->halves + 3 * i, low, high);
            }
            g->bounds[b * g->pairs + n] = gap - g->moved[g->rows_first[n] * g->blocks + b] - g->moved[g->rows_second[n] * g->blocks + b];
        }
    }
}
