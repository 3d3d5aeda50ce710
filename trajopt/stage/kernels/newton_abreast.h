/* Second derivatives and trial steps of several problems, one in each lane, for Newton's loop: every knot is a shooting node, and bounds on
   controls are a barrier, which the expansion does not contain.  Include abreast.h, with CURVATURE, before this file. */

EXPORT long newton_room(const int *head, long substeps)
{
    return stage_room(head) + (sizeof(curvature_t) + substeps * sizeof(substep_t)) / sizeof(V);
}

/* Expansion for a step AT_ONE_POINT, where dynamics_contracted also gives f and its derivatives; the cost is already expanded. */
static void put_contracted(ctx_t c, start_t at, knot_t *restrict k, contracted_t *restrict found, const V *lam, const first_t *out)
{
    const V h = STEP_LENGTH(at.dt);
    V *Q = (V *)out->Q, *S = (V *)out->S, *R = (V *)out->R, f[ND], delta[ND];
    contracted_once(c, at, lam, found);
    for (int i = 0; i < ND - NF; i++) f[i] = at.x[NX - NF + i];
    memcpy(f + ND - NF, found->f, sizeof(V) * NF);
    increments(h, f, delta, 1);
    manifold_integrate(at.x, delta, k->next);
    sensitivities_at_once(h, found->fx, found->fu, k->G);
    put_step(k, out);
    for (int i = 0; i < ND; i++)
        for (int j = i; j < ND; j++) Q[j * ND + i] = Q[i * ND + j] += found->xx[i * ND + j];
    for (int i = 0; i < MU; i++) {
        for (int j = 0; j < ND; j++) S[i * ND + j] += found->ux[i * ND + j];
        for (int j = i; j < MU; j++) R[j * NU + i] = R[i * NU + j] += found->uu[i * ME + j];
    }
}

/* Expansion for a step with several stages or on a Lie group, after forward(). */
static void put_swept(ctx_t c, start_t at, knot_t *restrict k, const substep_t *own, curvature_t *restrict a, const V *lam, const first_t *out)
{
    V *Q = (V *)out->Q, *S = (V *)out->S, *R = (V *)out->R;
    memcpy(a->lam, lam, sizeof a->lam);
    memcpy(k->next, a->x, sizeof k->next), memcpy(k->G, a->G, sizeof k->G);
    put_step(k, out);
    memset(a->H, 0, sizeof a->H);
    contract_back(c, at, k->node, own, a);
    blocks_of(a->H, &a->out);
    for (int i = 0; i < ND * ND; i++) Q[i] += a->out.xx[i];
    for (int i = 0; i < NU * ND; i++) S[i] += a->out.ux[i];
    for (int i = 0; i < NU * NU; i++) R[i] += a->out.uu[i];
}

/* Expansion at knot n as in stage_first_abreast, with the Hessian of l + lam' (x_next (-) node) as Q, S and R. */
EXPORT void stage_newton_abreast(const seen_t *of, long origin, long n, long read, const V *lam, const first_t *out, V *room)
{
    curvature_t *a = (curvature_t *)room;
    knot_t *k = (knot_t *)(a + 1);
    substep_t *own = (substep_t *)(k + 1);
    const stages_t *s = of->stages;
    V *w = (V *)(own + s->substeps);
    ctx_t c = context(s, w, NULL);
    load_abreast(of, origin, n, k);
    const start_t at = start_of(s, k);
    const int once = AT_ONE_POINT && s->substeps == 1 && !FORCES_ROOM;
    if (!once) forward(c, at, own, a->x, a->G, a->columns);
    running_expand(k->x, k->u, &k->t, &k->dt, k->theta, once ? k->forces : own->forces, k->phi, (V *)out->values.cost, (V *)out->lx,
                   (V *)out->lu, (V *)out->Q, (V *)out->S, (V *)out->R, w);
    c.phi = FORCES_BENT ? k->phi : NULL;
    if (once) put_contracted(c, at, k, &a->at, lam, out);
    else put_swept(c, at, k, own, a, lam, out);
    fix_unread_controls(read, (V *)out->R);
}

/* x <- xs (+) alpha dx at knot n */
static void tried_state(const tried_t *of, V alpha, long n, V *restrict x)
{
    V from[NX], move[ND];
    ROW_OF_EACH(of[l].xs + n * NX, NX, from)
    ROW_OF_EACH(of[l].dx + n * ND, ND, move)
    for (int i = 0; i < ND; i++) move[i] = alpha * move[i];
    manifold_integrate(from, move, x);
}

/* A row of `width` numbers of each lane l <- y */
#define TO_EACH(y, row, width)                          \
    {                                                   \
        double *rows[LANES];                            \
        for (int l = 0; l < LANES; l++) rows[l] = (row); \
        unpack_rows(y, width, rows);                    \
    }

/* Trial steps at knots first .. last of a phase: stores states, controls and defects, and adds the running costs. */
EXPORT void stage_tried_abreast(const tried_t *of, long first, long last, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1), alpha, total = ZERO, move[NU + 1];
    const ctx_t c = context(of->stages, w, k->forces);
    for (int l = 0; l < LANES; l++) LANE(alpha, l) = of[l].alpha;
    tried_state(of, alpha, first, k->x);
    for (long n = first; n < last; n++) {
        const long own = n - first;
        ROW_OF_EACH(of[l].us + n * NU, NU, k->u)
        ROW_OF_EACH(of[l].du + n * NU, NU, move)
        for (int i = 0; i < NU; i++) k->u[i] += alpha * move[i];
        ROW_OF_EACH(of[l].stages->p + own * NP, NP, k->p)
        ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k->theta)
        ROW_OF_EACH(of[l].stages->t + own, 1, &k->t)
        ROW_OF_EACH(of[l].stages->dt + own, 1, &k->dt)
        step(c, start_of(of->stages, k), k->next);
        running_value(k->x, k->u, &k->t, &k->dt, k->theta, k->forces, &k->l, w);
        total += k->l;
        TO_EACH(k->x, of[l].X + n * NX, NX)
        TO_EACH(k->u, of[l].U + n * NU, NU)
        tried_state(of, alpha, n + 1, k->x);
        manifold_difference(k->x, k->next, k->d);
        TO_EACH(k->d, of[l].D + n * ND, ND)
    }
    TO_EACH(k->x, of[l].X + last * NX, NX)
    for (int l = 0; l < LANES; l++) *of[l].cost += LANE(total, l);
}

/* Add the terminal cost at the final knot n. */
EXPORT void end_tried_abreast(const tried_t *of, long n, V *room)
{
    knot_t *k = (knot_t *)room;
    ROW_OF_EACH(of[l].X + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].end->theta, NTT, k->theta)
    ROW_OF_EACH(of[l].end->t, 1, &k->t)
    terminal_value(k->x, &k->t, k->theta, &k->l, (V *)(k + 1));
    for (int l = 0; l < LANES; l++) *of[l].cost += LANE(k->l, l);
}
