/* dynamics_partials by differences of dynamics_value. Python version: dynamics_backends/methods/finite_difference.py. Required
   before this text: DYN_NX, DYN_NDX, DYN_NU, DYN_ROWS, DYN_CENTRAL (1 for central differences), the relative step DYN_STEP, and
   dyn_component (DYN_NDX): the component of x that a direction perturbs, -1 on a Lie group. */

static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{
    enum { n = DYN_NDX, m = DYN_NU, rows = DYN_ROWS };
    V dx[n], at_x[DYN_NX], at_u[m + 1], ahead[rows], behind[rows];
    dynamics_value(c, x, u, t, p, f);
    for (int k = 0; k < n; k++) dx[k] = ZERO;
    for (int k = 0; k < m; k++) at_u[k] = u[k];
    for (int k = 0; k < n + m; k++) {
        const V at = k >= n ? u[k - n] : dyn_component[k] >= 0 ? x[dyn_component[k]] : ZERO;
        const V h = (at + DYN_STEP * v_fmax(splat(1.0), v_fabs(at))) - at;
        V *moved = k < n ? dx + k : at_u + k - n;
        const V before = *moved;
        *moved = before + h;
        manifold_integrate(x, dx, at_x);
        dynamics_value(c, at_x, at_u, t, p, ahead);
        if (DYN_CENTRAL) {
            *moved = before - h;
            manifold_integrate(x, dx, at_x);
            dynamics_value(c, at_x, at_u, t, p, behind);
        }
        *moved = before;
        for (int i = 0; i < rows; i++)
            *(k < n ? fx + i * n + k : fu + i * m + k - n) = DYN_CENTRAL ? (ahead[i] - behind[i]) / (2.0 * h) : (ahead[i] - f[i]) / h;
    }
}
