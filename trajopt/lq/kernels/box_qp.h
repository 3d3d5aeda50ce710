/* The box QP of trajopt/lq/compiled_lq.py.  Include small_matrices.h before this file, and define the constants of that module:
   MAX_BOX_ITERATIONS, ARMIJO, GRADIENT_TOLERANCE, SHORTEN, SHORTEST. */

ALWAYS_INLINE num between(num x, num lower, num upper)
{
    x = CHOSEN(x < lower, lower, x);
    return CHOSEN(x > upper, upper, x);
}

/* Cholesky factor of H with a unit row and column for each clamped variable; false if that matrix is not positive definite. */
ALWAYS_INLINE truth factor_of_free(const num *restrict H, const truth *restrict free_, num *restrict factor, lq_size dims)
{
    for (int a = 0; a < M_; a++)
        for (int b = 0; b < M_; b++) factor[a * M_ + b] = CHOSEN(free_[a] & free_[b], H[a * M_ + b], number(a == b ? 1.0 : 0.0));
    return cholesky(factor, M_);
}

/* moved <- the longest projected step from x along `direction` with sufficient decrease; returns true where there is one. */
ALWAYS_INLINE truth shortened(const num *restrict H, const num *gradient, const num *lower, const num *upper, const num *x,
                              const num *direction, truth wanted, num *restrict moved, lq_size dims)
{
    truth found = NOT(ALL);
    for (double alpha = 1.0; alpha > SHORTEST && ANY(wanted); alpha *= SHORTEN) {
        num slope = number(0.0), curvature = number(0.0), tried[M_], move[M_];
        for (int i = 0; i < M_; i++) {
            tried[i] = between(x[i] + alpha * direction[i], lower[i], upper[i]);
            move[i] = tried[i] - x[i];
            slope += gradient[i] * move[i];
        }
        for (int i = 0; i < M_; i++)
            for (int j = 0; j < M_; j++) curvature += 0.5 * move[i] * H[i * M_ + j] * move[j];
        const truth good = wanted & (-(slope + curvature) >= -ARMIJO * slope) & (slope < 0.0);
        for (int i = 0; i < M_; i++) moved[i] = CHOSEN(good, tried[i], moved[i]);
        found |= good;
        wanted &= NOT(good);
    }
    return found;
}

/* Minimize 1/2 x'H x + g'x within bounds; results: x, the free variables, and the factor of factor_of_free.  Returns false where the block of H
   of the free variables is not positive definite. */
static truth box_qp(const num *restrict H, const num *restrict g, const num *lower, const num *upper, num *restrict x, truth *restrict free_,
                    num *restrict factor, lq_size dims)
{
    truth definite = ALL, busy = ALL;
    for (int i = 0; i < M_; i++) x[i] = between(number(0.0), lower[i], upper[i]), free_[i] = ALL;
    for (int iteration = 0; iteration < MAX_BOX_ITERATIONS; iteration++) {
        num gradient[M_], direction[M_], moved[M_];
        truth moves = NOT(ALL), differs = NOT(ALL);
        for (int i = 0; i < M_; i++) {
            num s = number(0.0), scale = number(0.0);
            for (int j = 0; j < M_; j++) {
                s += H[i * M_ + j] * x[j];
                scale += size_of(H[i * M_ + j]) * size_of(x[j]);
            }
            gradient[i] = g[i] + s;
            moved[i] = x[i];
            const truth held = ((x[i] <= lower[i]) & (gradient[i] > 0.0)) | ((x[i] >= upper[i]) & (gradient[i] < 0.0));
            free_[i] = (busy & NOT(held)) | (NOT(busy) & free_[i]);
            moves |= free_[i] & (size_of(gradient[i]) > GRADIENT_TOLERANCE * (size_of(g[i]) + scale));
        }
        definite &= factor_of_free(H, free_, factor, dims);
        busy &= moves & definite;
        if (!ANY(busy)) break;
        for (int i = 0; i < M_; i++) direction[i] = CHOSEN(free_[i], gradient[i], number(0.0));
        minus_solve(factor, direction, 1, M_);
        busy &= shortened(H, gradient, lower, upper, x, direction, busy, moved, dims);
        for (int i = 0; i < M_; i++) differs |= moved[i] != x[i];
        busy &= differs;
        for (int i = 0; i < M_; i++) x[i] = CHOSEN(busy, moved[i], x[i]);
        if (!ANY(busy)) break;
    }
    return definite;
}
