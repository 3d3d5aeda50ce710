/* Second derivatives and trial steps of several problems, one in each lane, for Newton's loop: every knot is a shooting node, and bounds on
   controls are a barrier, which the expansion does not contain.  Include abreast.h, with CURVATURE, before this file. */

/* Expansion for a step AT_ONE_POINT, where dynamics_contracted also gives f and its derivatives; the cost is already expanded. */
static void put_contracted(const structure_t *S, ctx_t c, start_t at, const knot_t *k, contraction_t found, const V *lam, const first_t *out)
{
    const V h = step_of(S, at, 0);
    V *Q = (V *)out->Q, *R = (V *)out->R, f[ND], delta[ND];
    contracted_once(S, c, at, lam, found);
    for (int i = 0; i < ND - NF; i++) f[i] = at.x[NX - NF + i];
    copy(f + ND - NF, found.f, NF);
    increments(S, h, f, delta, 1);
    manifold_integrate(S, at.x, delta, k->next);
    sensitivities_at_once(S, h, found.fx, found.fu, k->scratch, k->G);
    put_step(S, k, out);
    for (int i = 0; i < ND; i++)
        for (int j = i; j < ND; j++) Q[j * ND + i] = Q[i * ND + j] += found.xx[i * ND + j];
    add_to((V *)out->S, found.ux, MU * ND);
    for (int i = 0; i < MU; i++)
        for (int j = i; j < MU; j++) R[j * NU + i] = R[i * NU + j] += found.uu[i * ME + j];
}

/* Expansion for a step with several stages or on a Lie group, after forward(). */
static void put_swept(const structure_t *S, ctx_t c, start_t at, const knot_t *k, V *own, const curvature_t *a, const V *lam,
                      const first_t *out)
{
    copy(a->lam, lam, ND);
    copy(k->next, a->x, NX), copy(k->G, a->G, ND * NW);
    put_step(S, k, out);
    clear(a->H, NW * NW);
    contract_back(S, c, at, k->node, own, a);
    blocks_of(S, a->H, a->out);
    add_to((V *)out->Q, a->out.xx, ND * ND);
    add_to((V *)out->S, a->out.ux, NU * ND);
    add_to((V *)out->R, a->out.uu, NU * NU);
}

/* Expansion at knot n as in stage_first_abreast, with the Hessian of l + lam' (x_next (-) node) as Q, S and R.  room: workspace of
   stage_second_room. */
EXPORT void stage_newton_abreast(const seen_t *of, long origin, long n, long read, const V *lam, const first_t *out, V *room)
{
    const stages_t *s = of->stages;
    const structure_t *S = s->structure;
    V *w = room;
    const curvature_t a = curvature_at(S, carved(&w, curvature_size(S)));
    const knot_t k = carved_knots(S, &w);
    V *own = carved(&w, s->substeps * substep_size(S));
    ctx_t c = context(s, w);
    load_abreast(S, of, origin, n, &k);
    const start_t at = start_of(s, &k);
    const int once = AT_ONE_POINT && s->substeps == 1 && !FORCES_ROOM;
    if (!once) forward(S, c, at, own, a.x, a.G, a.columns);
    put_running(S, &k, once ? k.forces : substep_at(S, own, 0).forces, out, w);
    c.phi = FORCES_BENT ? k.phi : NULL;
    if (once) put_contracted(S, c, at, &k, a.at, lam, out);
    else put_swept(S, c, at, &k, own, &a, lam, out);
    fix_unread_controls(S, read, (V *)out->R);
}

/* x <- xs (+) alpha dx at knot n */
static void tried_state(const structure_t *S, const tried_t *of, V alpha, long n, V *restrict x)
{
    V from[NX], move[ND];
    ROW_OF_EACH(of[l].xs + n * NX, NX, from)
    ROW_OF_EACH(of[l].dx + n * ND, ND, move)
    for (int i = 0; i < ND; i++) move[i] = alpha * move[i];
    manifold_integrate(S, from, move, x);
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
    const structure_t *S = of->stages->structure;
    V *w = room, alpha, total = ZERO, move[NU + 1];
    const knot_t front = carved_knots(S, &w);
    const int most = blocks_together(S);
    int blocks = 0;
    for (int l = 0; l < LANES; l++) LANE(alpha, l) = of[l].alpha;
    tried_state(S, of, alpha, first, front.x);
    for (long n = first; n < last; n++) {
        const long own = n - first;
        const knot_t k = nth_block(S, front, blocks++);
        V *x = nth_block(S, front, blocks % most).x; /* of the next knot */
        ROW_OF_EACH(of[l].us + n * NU, NU, k.u)
        ROW_OF_EACH(of[l].du + n * NU, NU, move)
        for (int i = 0; i < NU; i++) k.u[i] += alpha * move[i];
        ROW_OF_EACH(of[l].stages->p + own * NP, NP, k.p)
        ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k.theta)
        ROW_OF_EACH(of[l].stages->t + own, 1, k.t)
        ROW_OF_EACH(of[l].stages->dt + own, 1, k.dt)
        step(S, context(of->stages, w), start_of(of->stages, &k), k.next);
        TO_EACH(k.x, of[l].X + n * NX, NX)
        TO_EACH(k.u, of[l].U + n * NU, NU)
        if (blocks == most || n + 1 == last) {
            evaluate_running(S, front, blocks, w);
            for (int b = 0; b < blocks; b++) total += *nth_block(S, front, b).l;
            blocks = 0;
        }
        tried_state(S, of, alpha, n + 1, x);
        manifold_difference(S, x, k.next, k.d);
        TO_EACH(k.d, of[l].D + n * ND, ND)
        if (n + 1 == last) TO_EACH(x, of[l].X + last * NX, NX)
    }
    for (int l = 0; l < LANES; l++) *of[l].cost += LANE(total, l);
}

/* Add the terminal cost at the final knot n. */
EXPORT void end_tried_abreast(const tried_t *of, long n, V *room)
{
    const structure_t *S = of->end->structure;
    V *w = room;
    const knot_t k = carved_knots(S, &w);
    ROW_OF_EACH(of[l].X + n * NX, NX, k.x)
    ROW_OF_EACH(of[l].end->theta, NTT, k.theta)
    ROW_OF_EACH(of[l].end->t, 1, k.t)
    call(S->functions->terminal_value, IN(k.x, k.t, k.theta), OUT(k.l), w);
    for (int l = 0; l < LANES; l++) *of[l].cost += LANE(*k.l, l);
}
