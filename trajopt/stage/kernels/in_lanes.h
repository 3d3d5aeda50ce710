/* First derivatives at one knot of several problems of the same structure, one problem in each lane.  Results stay SIMD vectors, as the LQ
   sweeps in lanes read them.  Include stage.h and rows.h before this file. */

/* y <- a row of `width` numbers for each lane l */
#define ROW_OF_EACH(row, width, y)                        \
    {                                                     \
        const double *rows[LANES];                        \
        for (int l = 0; l < LANES; l++) rows[l] = (row);  \
        pack_rows(rows, width, y);                        \
    }

/* Load the inputs of knot n of the horizon, in a phase that begins at knot `origin`. */
static void load_in_lanes(const structure_t *S, const seen_t *of, long origin, long n, const knot_t *k)
{
    const long own = n - origin;
    ROW_OF_EACH(of[l].xs + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].xs + (n + 1) * NX, NX, k->node)
    ROW_OF_EACH(of[l].us + n * NU, NU, k->u)
    ROW_OF_EACH(of[l].stages->p + own * NP, NP, k->p)
    ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k->theta)
    ROW_OF_EACH(of[l].stages->t + own, 1, k->t)
    ROW_OF_EACH(of[l].stages->dt + own, 1, k->dt)
}

/* Store the defect of the time step to k->next, and A and B from its sensitivities k->G. */
static void put_step(const structure_t *S, const knot_t *k, const first_t *out)
{
    manifold_difference(S, k->node, k->next, k->d);
    copy((V *)out->values.d, k->d, ND);
    carry_sensitivities(S, k);
    state_sensitivities(S, k, (V *)out->A);
    control_sensitivities(S, k, (V *)out->B);
}

/* Expand the running cost into the arrays of `out`. */
static void put_running(const structure_t *S, const knot_t *k, const V *forces, const first_t *out, V *w)
{
    V *const to[] = {(V *)out->values.cost, (V *)out->lx, (V *)out->lu, (V *)out->Q, (V *)out->S, (V *)out->R, k->phi};
    call(S->functions->running_expand, IN(k->x, k->u, k->t, k->dt, k->theta, forces), to, w);
}

/* Set the diagonal of R to 1 for controls that nothing reads, those from number `read` on, so that they keep their values. */
static void fix_unread_controls(const structure_t *S, long read, V *restrict R)
{
    for (long a = read; a < NU; a++) R[a * NU + a] = splat(1.0);
}

/* Values and first derivatives at knot n of the horizon, in a phase that begins at knot `origin` and reads the first `read` controls.  Results
   are SIMD vectors. */
EXPORT void stage_first_in_lanes(const seen_t *of, long origin, long n, long read, const first_t *out, V *workspace)
{
    const structure_t *S = of->stages->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    const ctx_t c = context(of->stages, w);
    load_in_lanes(S, of, origin, n, &k);
    linearize(S, c, start_of(of->stages, &k), k.next, k.G, k.scratch, NULL, NULL);
    put_step(S, &k, out);
    put_running(S, &k, k.forces, out, w);
    fix_unread_controls(S, read, (V *)out->R);
}

/* First derivatives and Hessian of the terminal cost, at the final knot n. */
EXPORT void end_first_in_lanes(const seen_t *of, long n, const end_first_t *out, V *workspace)
{
    const structure_t *S = of->end->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    ROW_OF_EACH(of[l].xs + n * NX, NX, k.x)
    ROW_OF_EACH(of[l].end->theta, NTT, k.theta)
    ROW_OF_EACH(of[l].end->t, 1, k.t)
    call(S->functions->terminal_expand, IN(k.x, k.t, k.theta), OUT((V *)out->cost, (V *)out->lx, (V *)out->Q), w);
}
