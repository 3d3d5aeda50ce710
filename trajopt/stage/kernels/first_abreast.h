/* First derivatives of several problems, one in each lane.  Include abreast.h before this file. */

/* Values and first derivatives at knot n of the horizon, in a phase that begins at knot `origin` and reads the first `read` controls.  Results
   are SIMD vectors. */
EXPORT void stage_first_abreast(const seen_t *of, long origin, long n, long read, const first_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    const ctx_t c = context(of->stages, w, k->forces);
    load_abreast(of, origin, n, k);
    linearize(c, start_of(of->stages, k), k->next, k->G);
    put_step(k, out);
    running_expand(k->x, k->u, &k->t, &k->dt, k->theta, k->forces, NULL, (V *)out->values.cost, (V *)out->lx, (V *)out->lu,
                   (V *)out->Q, (V *)out->S, (V *)out->R, w);
    fix_unread_controls(read, (V *)out->R);
}

/* Hessian of the cost alone at knot n; takes the time step only if terms read its contact forces. */
EXPORT void stage_terms_abreast(const seen_t *of, long origin, long n, long read, const first_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    const ctx_t c = context(of->stages, w, k->forces);
    load_abreast(of, origin, n, k);
    if (FORCES_ROOM) linearize(c, start_of(of->stages, k), k->next, k->G);
    running_expand(k->x, k->u, &k->t, &k->dt, k->theta, k->forces, NULL, &k->l, k->lx, k->lu, (V *)out->Q, (V *)out->S, (V *)out->R, w);
    fix_unread_controls(read, (V *)out->R);
}
