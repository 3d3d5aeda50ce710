/* Several problems of one structure at the same knot, one in each lane; results stay vectors, as which the sweeps of problems abreast read
   them.  Before this text stand stage.h and rows.h. */

/* y <- a row of `width` numbers for each lane l */
#define ROW_OF_EACH(row, width, y)                        \
    {                                                     \
        const double *rows[LANES];                        \
        for (int l = 0; l < LANES; l++) rows[l] = (row);  \
        pack_rows(rows, width, y);                        \
    }

/* What the knot n of the horizon reads, in a phase whose first one is `origin`. */
static void load_abreast(const seen_t *of, long origin, long n, knot_t *restrict k)
{
    const long own = n - origin;
    ROW_OF_EACH(of[l].xs + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].xs + (n + 1) * NX, NX, k->node)
    ROW_OF_EACH(of[l].us + n * NU, NU, k->u)
    ROW_OF_EACH(of[l].stages->p + own * NP, NP, k->p)
    ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k->theta)
    ROW_OF_EACH(of[l].stages->t + own, 1, &k->t)
    ROW_OF_EACH(of[l].stages->dt + own, 1, &k->dt)
}

/* The gap behind a time step whose state and sensitivities are k->next and k->G, and A and B of it. */
static void put_step(knot_t *restrict k, const first_t *out)
{
    manifold_difference(k->node, k->next, k->d);
    memcpy(out->values.d, k->d, sizeof k->d);
    carry_sensitivities(k);
    state_sensitivities(k, (V *)out->A);
    control_sensitivities(k, (V *)out->B);
}

/* What nothing reads, of controls behind the first `read`, stays where it is. */
static void put_still(long read, V *restrict R)
{
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
