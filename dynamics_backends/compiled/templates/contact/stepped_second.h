/* dynamics_contracted of robots that touch the ground in long time steps. Python version: contracted in
   systems/contact/stepped_contact.py.
   Required before this text: stepped.h, constrained_second.h, csj_start and csj_at (degrees of freedom that move each contact),
   and

   stepped_curved(c, x, u, t, p, a, lam, top, entries, xx, slopes, J, bend)       parts of both derivatives; bend: -H_ww */

/* P (3 x CC) <- J_c dV of a contact */
static void stepped_arriving(int contact, const V *J, V step, const V *fx, const V *fu, V *restrict P)
{
    enum { n = SV, ndx = 2 * SV, nu = CC - 2 * SV };
    for (int i = 0; i < 3 * CC; i++) P[i] = ZERO;
    for (int e = csj_start[contact]; e < csj_start[contact + 1]; e++)
        for (int r = 0; r < 3; r++) {
            const V column = J[3 * e + r], moved = step * column, *da = fx + csj_at[e] * ndx, *du = fu + csj_at[e] * nu;
            V *row = P + r * CC;
            for (int j = 0; j < ndx; j++) row[j] += moved * da[j];
            for (int j = 0; j < nu; j++) row[ndx + j] += moved * du[j];
            row[n + csj_at[e]] += column;
        }
}

/* xx, ux, uu += P' bend P */
static void stepped_bend(const V *bend, const V *restrict P, V *restrict xx, V *restrict ux, V *restrict uu)
{
    enum { ndx = 2 * SV, nu = CC - 2 * SV };
    for (int i = 0; i < CC; i++) {
        V b[3];
        for (int r = 0; r < 3; r++) b[r] = bend[r] * P[i] + bend[3 + r] * P[CC + i] + bend[6 + r] * P[2 * CC + i];
        V *row = i < ndx ? xx + i * ndx : ux + (i - ndx) * ndx;
        for (int j = 0; j < ndx; j++) row[j] += b[0] * P[j] + b[1] * P[CC + j] + b[2] * P[2 * CC + j];
        if (i < ndx) continue;
        row = uu + (i - ndx) * nu;
        for (int j = 0; j < nu; j++) row[j] += b[0] * P[ndx + j] + b[1] * P[CC + ndx + j] + b[2] * P[2 * CC + ndx + j];
    }
}

static void dynamics_contracted(ctx_t c, const V *x, const V *u, V t, const V *p, const V *lam, contraction_t to)
{
    constrained_factor_t *k = (constrained_factor_t *)c.w;
    constrained_slopes_t *g = (constrained_slopes_t *)(k + 1);
    V *top = (V *)(g + 1), *T = top + CD * CC, *P = T + CD * CC, *J = P + 3 * CC, *bend = J + SJ, none[CC];
    c.w = bend + 9 * SC;
    dynamics_value(c, x, u, t, p, to.f);
    stepped_curved(c, x, u, t, p, to.f, lam, top, (V *)k, to.xx, (V *)g, J, bend);
    constrained_second((constrained_sides_t){k, top, none}, g, T, to);
    for (int i = 0; i < SC; i++) {
        stepped_arriving(i, J, p[SSTEP], to.fx, to.fu, P);
        stepped_bend(bend + 9 * i, P, to.xx, to.ux, to.uu);
    }
}
