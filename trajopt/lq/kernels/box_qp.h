/* The box QP of trajopt/lq/lq_solver.py, whose constants lq_constants.h contains. */
#pragma once
#include "lq_constants.h"
#include "small_matrices.h"

ALWAYS_INLINE double between(double x, double lower, double upper) { return x < lower ? lower : x > upper ? upper : x; }

/* Cholesky factor of H with a unit row and column for each clamped variable; 0 if that matrix is not positive definite. */
ALWAYS_INLINE int factor_of_free(const double *restrict H, const int *restrict free_, double *restrict factor, lq_size dims)
{
    for (int a = 0; a < M_; a++)
        for (int b = 0; b < M_; b++) factor[a * M_ + b] = free_[a] && free_[b] ? H[a * M_ + b] : a == b;
    return cholesky(factor, M_);
}

/* moved <- the longest projected step from x along `direction` with sufficient decrease; returns 0 if there is none. */
ALWAYS_INLINE int shortened(const double *restrict H, const double *gradient, const double *lower, const double *upper, const double *x,
                            const double *direction, double *restrict moved, lq_size dims)
{
    for (double alpha = 1.0; alpha > SHORTEST; alpha *= SHORTEN) {
        double slope = 0.0, curvature = 0.0, move[M_];
        for (int i = 0; i < M_; i++) {
            moved[i] = between(x[i] + alpha * direction[i], lower[i], upper[i]);
            move[i] = moved[i] - x[i];
            slope += gradient[i] * move[i];
        }
        for (int i = 0; i < M_; i++)
            for (int j = 0; j < M_; j++) curvature += 0.5 * move[i] * H[i * M_ + j] * move[j];
        if (-(slope + curvature) >= -ARMIJO * slope && slope < 0.0) return 1;
    }
    return 0;
}

/* Minimize 1/2 x'H x + g'x within bounds; results: x, the free variables, and the factor of factor_of_free.  Returns 0 if the block of H of the
   free variables is not positive definite. */
static int box_qp(const double *restrict H, const double *restrict g, const double *lower, const double *upper, double *restrict x,
                  int *restrict free_, double *restrict factor, lq_size dims)
{
    for (int i = 0; i < M_; i++) x[i] = between(0.0, lower[i], upper[i]), free_[i] = 1;
    for (int iteration = 0; iteration < MAX_BOX_ITERATIONS; iteration++) {
        double gradient[M_], direction[M_], moved[M_];
        int descends = 0, differs = 0;
        for (int i = 0; i < M_; i++) {
            double s = 0.0, scale = 0.0;
            for (int j = 0; j < M_; j++) {
                s += H[i * M_ + j] * x[j];
                scale += fabs(H[i * M_ + j]) * fabs(x[j]);
            }
            gradient[i] = g[i] + s;
            free_[i] = !((x[i] <= lower[i] && gradient[i] > 0.0) || (x[i] >= upper[i] && gradient[i] < 0.0));
            descends |= free_[i] && fabs(gradient[i]) > GRADIENT_TOLERANCE * (fabs(g[i]) + scale);
        }
        if (!factor_of_free(H, free_, factor, dims)) return 0;
        if (!descends) break;
        for (int i = 0; i < M_; i++) direction[i] = free_[i] ? gradient[i] : 0.0;
        minus_solve(factor, direction, 1, M_);
        if (!shortened(H, gradient, lower, upper, x, direction, moved, dims)) break;
        for (int i = 0; i < M_; i++) differs |= moved[i] != x[i], x[i] = moved[i];
        if (!differs) break;
    }
    return 1;
}
