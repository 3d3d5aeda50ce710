/* First order of several problems of one structure at the same knot, one in each lane; the results stay vectors, as which the sweeps of
   problems abreast read them.  Before this text stand stage.h and rows.h. */

/* y <- a row of `width` numbers for each lane l */
#define ROW_OF_EACH(row, width, y)                        \
    {                                                     \
        const double *rows[LANES];                        \
        for (int l = 0; l < LANES; l++) rows[l] = (row);  \
        pack_rows(rows, width, y);                        \
    }

/* The knot n of the horizon, in a phase whose first one is `origin` and which reads the first `read` controls; what nothing reads stays
   where it is.  Where the results go, there are vectors in place of rows. */
EXPORT void stage_first_abreast(const seen_t *of, long origin, long n, long read, const first_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1), *R = (V *)out->R;
    const ctx_t c = context(of->stages, w, k->forces);
    const long own = n - origin;
    ROW_OF_EACH(of[l].xs + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].xs + (n + 1) * NX, NX, k->node)
    ROW_OF_EACH(of[l].us + n * NU, NU, k->u)
    ROW_OF_EACH(of[l].stages->p + own * NP, NP, k->p)
    ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k->theta)
    ROW_OF_EACH(of[l].stages->t + own, 1, &k->t)
    ROW_OF_EACH(of[l].stages->dt + own, 1, &k->dt)
    linearize(c, start_of(of->stages, k), k->next, k->G);
    manifold_difference(k->node, k->next, k->d);
    memcpy(out->values.d, k->d, sizeof k->d);
    carry_sensitivities(k);
    state_sensitivities(k, (V *)out->A);
    control_sensitivities(k, (V *)out->B);
    running_expand(k->x, k->u, &k->t, &k->dt, k->theta, k->forces, NULL, (V *)out->values.cost, (V *)out->lx, (V *)out->lu,
                   (V *)out->Q, (V *)out->S, R, w);
    for (long a = read; a < NU; a++) R[a * NU + a] = splat(1.0);
}

/* The final knot, number n. */
EXPORT void end_first_abreast(const seen_t *of, long n, const end_first_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    ROW_OF_EACH(of[l].xs + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].end->theta, NTT, k->theta)
    ROW_OF_EACH(of[l].end->t, 1, &k->t)
    terminal_expand(k->x, &k->t, k->theta, (V *)out->cost, (V *)out->lx, (V *)out->Q, (V *)(k + 1));
}
