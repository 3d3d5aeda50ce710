/* First derivatives of several problems, one in each lane.  Include abreast.h before this file. */

/* Values and first derivatives at knot n of the horizon, in a phase that begins at knot `origin` and reads the first `read` controls.  Results
   are SIMD vectors. */
EXPORT void stage_first_abreast(const seen_t *of, long origin, long n, long read, const first_t *out, V *room)
{
    const structure_t *S = of->stages->structure;
    V *w = room;
    const knot_t k = carved_knots(S, &w);
    const ctx_t c = context(of->stages, w);
    load_abreast(S, of, origin, n, &k);
    linearize(S, c, start_of(of->stages, &k), k.next, k.G, k.scratch);
    put_step(S, &k, out);
    put_running(S, &k, k.forces, out, w);
    fix_unread_controls(S, read, (V *)out->R);
}

/* Hessian of the cost alone at knot n; takes the time step only if terms read its contact forces. */
EXPORT void stage_terms_abreast(const seen_t *of, long origin, long n, long read, const first_t *out, V *room)
{
    const structure_t *S = of->stages->structure;
    V *w = room;
    const knot_t k = carved_knots(S, &w);
    const ctx_t c = context(of->stages, w);
    load_abreast(S, of, origin, n, &k);
    if (FORCES_ROOM) linearize(S, c, start_of(of->stages, &k), k.next, k.G, k.scratch);
    const first_t to = {.values = {.cost = (double *)k.l}, .lx = (double *)k.lx, .lu = (double *)k.lu, .Q = out->Q, .S = out->S, .R = out->R};
    put_running(S, &k, k.forces, &to, w);
    fix_unread_controls(S, read, (V *)out->R);
}
