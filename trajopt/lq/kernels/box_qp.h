/* The box QP of trajopt/lq/box_qp.py in C, behind small_matrices.h.  Before this text stand that module's constants: MAX_BOX_ITERATIONS,
   ARMIJO, GRADIENT_TOLERANCE, SHORTEN, SHORTEST. */

static inline double clipped(double x, double lower, double upper)
{
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}

/* minimize 1/2 x'H x + g'x within bounds: x, the indices of the free variables and the Cholesky factor of their block of H.
   Returns how many they are, or -1 where the block is not positive definite. */
static int box_qp(const double *restrict H, const double *restrict g, const double *lower, const double *upper, double *restrict x,
                  int *restrict free_, double *restrict factor)
{
    int count = 0;
    for (int i = 0; i < M_; i++) x[i] = clipped(0.0, lower[i], upper[i]);
    for (int iteration = 0; iteration < MAX_BOX_ITERATIONS; iteration++) {
        double gradient[M_], direction[M_], step[M_], moved[M_];
        int moves = 0, changed = 0;
        count = 0;
        for (int i = 0; i < M_; i++) {
            double s = 0.0, scale = 0.0;
            for (int j = 0; j < M_; j++) {
                s += H[i * M_ + j] * x[j];
                scale += fabs(H[i * M_ + j]) * fabs(x[j]);
            }
            gradient[i] = g[i] + s;
            moved[i] = x[i];
            if ((x[i] <= lower[i] && gradient[i] > 0.0) || (x[i] >= upper[i] && gradient[i] < 0.0)) continue;
            free_[count++] = i;
            moves |= fabs(gradient[i]) > GRADIENT_TOLERANCE * (fabs(g[i]) + scale);
        }
        for (int a = 0; a < count; a++)
            for (int b = 0; b < count; b++) factor[a * M_ + b] = H[free_[a] * M_ + free_[b]];
        if (!cholesky(factor, count)) return -1;
        if (!moves) break;
        for (int a = 0; a < count; a++) step[a] = gradient[free_[a]];
        minus_solve(factor, step, 1, count);
        memset(direction, 0, sizeof direction);
        for (int a = 0; a < count; a++) direction[free_[a]] = step[a];
        for (double alpha = 1.0; alpha > SHORTEST; alpha *= SHORTEN) {
            double slope = 0.0, bend = 0.0, move[M_];
            for (int i = 0; i < M_; i++) {
                moved[i] = clipped(x[i] + alpha * direction[i], lower[i], upper[i]);
                move[i] = moved[i] - x[i];
                slope += gradient[i] * move[i];
            }
            for (int i = 0; i < M_; i++)
                for (int j = 0; j < M_; j++) bend += 0.5 * move[i] * H[i * M_ + j] * move[j];
            if (-(slope + bend) >= -ARMIJO * slope && slope < 0.0) {
                changed = 1;
                break;
            }
        }
        if (!changed || !memcmp(moved, x, sizeof moved)) break;
        memcpy(x, moved, sizeof moved);
    }
    return count;
}
