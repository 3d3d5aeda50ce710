/* dynamics_partials by numbers with one perturbation, one direction after the other. Required before this text: DYN_NDX, DYN_NU,
   DYN_ROWS, the size DYN_STEP of a perturbation, and dynamics_along(c, x, u, t, p, e, f, slope), which computes the value f and its
   derivative slope in the direction e (DYN_NDX + DYN_NU). */

static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{
    enum { n = DYN_NDX, m = DYN_NU, rows = DYN_ROWS };
    V e[n + m], slope[rows];
    for (int k = 0; k < n + m; k++) e[k] = ZERO;
    for (int k = 0; k < n + m; k++) {
        e[k] = splat(DYN_STEP);
        dynamics_along(c, x, u, t, p, e, f, slope);
        e[k] = ZERO;
        for (int i = 0; i < rows; i++) *(k < n ? fx + i * n + k : fu + i * m + k - n) = slope[i] / DYN_STEP;
    }
}
