/* Knots of one phase of an optimal-control problem: values, first derivatives, and second derivatives of

       sigma l(x, u) + lam' (x_next (-) node) + y' g(x, u),

   in the tangent spaces at x and at the node.  The counterpart of trajopt/stage/numpy_stages.py.

   Include stage_types.h and knots.h with its dependencies before this file, and define:
   FIRST or SECOND or both, for the functions to compile; with SECOND or the part "newton", also CURVATURE, with curvature.h included;
   FORCES_ROOM: entries of the contact forces and of their derivatives that running terms read, 0 for none;
   FORCES_BENT: number of forces whose multipliers phi running_expand returns in place of (phi' forces)_xx, 0 for none, only with CURVATURE;
   NU >= MU (controls of the problem), NP (dynamics parameters); NT and NTT (weights and parameters of running and terminal terms), at most
   THETA_ROOM; NG and NGT (constraints at the knots and at the final one), NPG and NPGT (their parameters), at most PG_ROOM;
   and the functions (term_source.py, constraint_source.py)

       running_value(x, u, t, dt, theta, forces, l, w)  running_expand(x, u, t, dt, theta, forces, phi, l, lx, lu, lxx, lux, luu, w)
       path_value(x, u, t, pg, g, w)                    path_first(.., g, gx, gu, w)      path_second(.., y, hxx, hux, huu, w)
       terminal_value, terminal_expand, final_value, final_first, final_second            the same without u and dt

   Arrays begin at the first knot of the phase.  Results that are NULL are not stored.  With ABREAST, struct arguments are arrays of LANES
   structs, one for each problem, with the same results NULL, and the lanes hold the same knot of each problem. */

#if FORCES_BENT
#define BENT_ROOM (long)(sizeof(contracted_t) / sizeof(V))
#else
#define BENT_ROOM 0
#endif

EXPORT long stage_room(const int *head)
{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb; (void)nv; (void)nq;
    return sizeof(knot_t) / sizeof(V) + DYNAMICS_ROOM + TERMS_ROOM + BENT_ROOM;
}

/* Store x_next and the defect d at the node in `values` of lane l. */
#define STORE_STEP(values)                                  \
    STORE(k->next, NX, count, n, (values).x_next)           \
    manifold_difference(k->node, k->next, k->d);            \
    STORE(k->d, ND, count, n, (values).d)

static ctx_t context(const stages_t *s, V *w, V *forces)
{
    return (ctx_t){.ti = s->ti, .td = s->td, .w = w, .forces = FORCES_ROOM ? forces : NULL};
}

static start_t start_of(const stages_t *s, const knot_t *k)
{
    return (start_t){s->substeps, k->x, k->u, k->p, k->t, k->dt};
}

static void expand_running(knot_t *restrict k, const V *forces, V *w)
{
    running_expand(k->x, k->u, &k->t, &k->dt, k->theta, forces, k->phi, &k->l, k->lx, k->lu, k->lxx, k->lux, k->luu, w);
}

/* Add (phi' forces)_xx to lxx and lux; the forces are linear in u. */
static void add_forces_bend(ctx_t c, knot_t *restrict k)
{
#if FORCES_BENT
    contracted_t *at = (contracted_t *)c.w;
    V none[ND];
    for (int i = 0; i < ND; i++) none[i] = ZERO;
    c.w = (V *)(at + 1), c.phi = k->phi;
    dynamics_contracted(c, k->x, k->u, k->t, k->p, none, into(at));
    add_bent(ND, MU, at->xx, at->ux, k->lxx, k->lux);
#else
    (void)c, (void)k;
#endif
}

/* Transport the columns of G to the tangent space at the node. */
static void carry_sensitivities(knot_t *restrict k)
{
#ifdef LIE
    V carry[LIE_ROOM];
    manifold_dexp_inv(k->d, carry);
    blocks_times(carry, k->G, NW);
#else
    (void)k;
#endif
}

/* A (ND x ND) and B (ND x NU) as blocks of G */
ALWAYS_INLINE void state_sensitivities(const knot_t *restrict k, V *restrict A)
{
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < ND; j++) A[i * ND + j] = k->G[i * NW + j];
}

ALWAYS_INLINE void control_sensitivities(const knot_t *restrict k, V *restrict B)
{
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < NU; j++) B[i * NU + j] = j < MU ? k->G[i * NW + ND + j] : ZERO;
}

#ifdef CURVATURE
/* Blocks xx, ux, uu from the upper triangle of H (NW x NW). */
static void blocks_of(const V *H, hessian_t *restrict out)
{
    for (int i = 0; i < ND; i++)
        for (int j = i; j < ND; j++) out->xx[i * ND + j] = out->xx[j * ND + i] = H[i * NW + j];
    for (int i = 0; i < NU; i++)
        for (int j = 0; j < ND; j++) out->ux[i * ND + j] = i < MU ? H[j * NW + ND + i] : ZERO;
    for (int i = 0; i < NU; i++)
        for (int j = i; j < NU; j++) out->uu[i * NU + j] = out->uu[j * NU + i] = j < MU ? H[(ND + i) * NW + ND + j] : ZERO;
}

#endif

#ifdef FIRST
#if !defined ROLLOUT && !defined ABREAST /* rollouts compute values, too */
EXPORT void stage_values(const stages_t *s, const point_t *at, long first, long last, const values_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    const ctx_t c = context(s, w, k->forces);
    for (long n = first; n < last; n += PACE) {
        const int count = load_knots(s, at, n, last, k);
        step(c, start_of(s, k), k->next);
        STORE_STEP(out[l])
        running_value(k->x, k->u, &k->t, &k->dt, k->theta, k->forces, &k->l, w);
        STORE(&k->l, 1, count, n, out[l].cost)
        path_value(k->x, k->u, &k->t, k->pg, k->g, w);
        STORE(k->g, NG, count, n, out[l].g)
    }
}

#ifdef LIE
/* to <- xs (+) alpha dx for `count` states */
EXPORT void stage_moved(const double *xs, const double *dx, double alpha, long count, double *to)
{
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        V x[NX], d[ND], y[NX];
        pack(xs + n * NX, NX, own, x);
        pack(dx + n * ND, ND, own, d);
        for (int i = 0; i < ND; i++) d[i] = alpha * d[i];
        manifold_integrate(x, d, y);
        unpack(y, NX, own, to + n * NX);
    }
}

/* Transport covectors lam at `count` states to the states x (+) alpha dx: lam <- dexp^-1(alpha dx)' lam on the groups. */
EXPORT void stage_carried(const double *dx, double alpha, long count, double *lam)
{
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        V d[ND], M[LIE_ROOM], from[ND], y[ND];
        pack(dx + n * ND, ND, own, d);
        pack(lam + n * ND, ND, own, from);
        for (int i = 0; i < ND; i++) d[i] = alpha * d[i];
        manifold_dexp_inv(d, M);
        memcpy(y, from, sizeof y);
        for (int g = 0; g < LIE_GROUPS; g++)
            for (int j = 0; j < lie_size[g]; j++) {
                V s = ZERO;
                for (int i = 0; i < lie_size[g]; i++) s += M[lie_offset[g] + i * lie_size[g] + j] * from[lie_at[g] + i];
                y[lie_at[g] + j] = s;
            }
        unpack(y, ND, own, lam + n * ND);
    }
}
#endif
#endif

static void store_sensitivities(knot_t *restrict k, int count, long n, const first_t *out)
{
    carry_sensitivities(k);
    state_sensitivities(k, k->block);
    STORE(k->block, ND * ND, count, n, out[l].A)
    control_sensitivities(k, k->block);
    STORE(k->block, ND * NU, count, n, out[l].B)
}

/* Prefetch cache lines that will be written soon. */
static inline void prefetch_rows(const double *rows, long numbers)
{
#if PACE > 1
    for (long i = 0; rows && i < numbers; i += 8) __builtin_prefetch(rows + i, 1, 2);
#else
    (void)rows, (void)numbers;
#endif
}

/* Values and first derivatives; terms alone if x_next, d and A are NULL. */
EXPORT void stage_first(const stages_t *s, const point_t *at, long first, long last, const first_t *out, V *room)
{
    const int stepped = out->values.x_next || out->values.d;
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    const ctx_t c = context(s, w, k->forces);
    for (long n = first; n < last; n += PACE) {
        const V *forces = k->forces;
        const int count = load_knots(s, at, n, last, k);
        prefetch_rows(out->A ? out->A + n * ND * ND : NULL, (long)count * ND * ND);
        prefetch_rows(out->B ? out->B + n * ND * NU : NULL, (long)count * ND * NU);
        prefetch_rows(out->Q ? out->Q + n * ND * ND : NULL, (long)count * ND * ND);
        prefetch_rows(out->S ? out->S + n * NU * ND : NULL, (long)count * NU * ND);
        prefetch_rows(out->R ? out->R + n * NU * NU : NULL, (long)count * NU * NU);
#ifdef SECOND
        if (out->kept) {
            substep_t *kept = (substep_t *)out->kept + BLOCK_AT(n) * s->substeps;
            forward(c, start_of(s, k), kept, k->next, k->G, NULL);
            forces = kept->forces;
        } else
#endif
        if (out->A || FORCES_ROOM) linearize(c, start_of(s, k), k->next, k->G);
        else if (stepped) step(c, start_of(s, k), k->next);
        if (stepped) {
            STORE_STEP(out[l].values)
        }
        if (out->A) store_sensitivities(k, count, n, out);
        expand_running(k, forces, w);
        if (out->Q) add_forces_bend(c, k);
        STORE(&k->l, 1, count, n, out[l].values.cost)
        STORE(k->lx, ND, count, n, out[l].lx)
        STORE(k->lu, NU, count, n, out[l].lu)
        STORE(k->lxx, ND * ND, count, n, out[l].Q)
        STORE(k->lux, NU * ND, count, n, out[l].S)
        STORE(k->luu, NU * NU, count, n, out[l].R)
        path_first(k->x, k->u, &k->t, k->pg, k->g, k->gx, k->gu, w);
        STORE(k->g, NG, count, n, out[l].values.g)
        STORE(k->gx, NG * ND, count, n, out[l].gx)
        STORE(k->gu, NG * NU, count, n, out[l].gu)
    }
}

#endif

#ifdef SECOND
/* sigma; lam and y, NULL for none; kept: substeps stored by stage_first at the same point, or NULL. */
typedef struct {
    double sigma;
    const double *lam, *y;
    const substep_t *kept;
    double *xx, *ux, *uu;
} second_t;

/* to += factor from */
static void add_scaled(V factor, const V *from, V *restrict to, int count)
{
    for (int i = 0; i < count; i++) to[i] += factor * from[i];
}

EXPORT long stage_kept(void) { return sizeof(substep_t) / sizeof(V); }

EXPORT long stage_second_room(const int *head, long substeps)
{
    return stage_room(head) + (sizeof(curvature_t) + substeps * sizeof(substep_t)) / sizeof(V);
}

EXPORT void stage_second(const stages_t *s, const point_t *at, long first, long last, const second_t *out, V *room)
{
    curvature_t *a = (curvature_t *)room;
    knot_t *k = (knot_t *)(a + 1);
    substep_t *own = (substep_t *)(k + 1);
    V *w = (V *)(own + s->substeps), *xx = a->out.xx, *ux = a->out.ux, *uu = a->out.uu;
    ctx_t c = context(s, w, NULL);
    V sigma;
    LOAD(&out[l].sigma, 0, 1, 1, &sigma)
    for (long n = first; n < last; n += PACE) {
        const int count = load_knots(s, at, n, last, k);
        const substep_t *kept = out->kept ? out->kept + BLOCK_AT(n) * s->substeps : NULL;
        if (out->sigma != 0.0) {
            if (FORCES_ROOM && !kept)
                dynamics_partials(context(s, w, k->forces), k->x, k->u, k->t, k->p, a->at.f, a->at.fx, a->at.fu);
            expand_running(k, kept ? kept->forces : k->forces, w);
            if (!out->lam) add_forces_bend(c, k);
            for (int i = 0; i < FORCES_BENT; i++) k->phi[i] *= sigma;
        }
        c.phi = FORCES_BENT && out->sigma != 0.0 ? k->phi : NULL;
        if (out->lam) {
            LOAD(out[l].lam, n, ND, count, a->lam)
            contract(c, start_of(s, k), k->node, kept, own, a);
            blocks_of(a->H, &a->out);
        } else {
            memset(&a->out, 0, sizeof a->out);
        }
        if (out->sigma != 0.0) {
            add_scaled(sigma, k->lxx, xx, ND * ND);
            add_scaled(sigma, k->lux, ux, NU * ND);
            add_scaled(sigma, k->luu, uu, NU * NU);
        }
        if (out->y) {
            LOAD(out[l].y, n, NG, count, k->g)
            path_second(k->x, k->u, &k->t, k->pg, k->g, k->lxx, k->lux, k->luu, w);
            add_scaled(splat(1.0), k->lxx, xx, ND * ND);
            add_scaled(splat(1.0), k->lux, ux, NU * ND);
            add_scaled(splat(1.0), k->luu, uu, NU * NU);
        }
        STORE(xx, ND * ND, count, n, out[l].xx)
        STORE(ux, NU * ND, count, n, out[l].ux)
        STORE(uu, NU * NU, count, n, out[l].uu)
    }
}

#ifndef ABREAST
/* Phase and point of stage_knot_second, for a sweep that computes lam knot by knot. */
typedef struct {
    const stages_t *stages;
    const point_t *at;
    V *room;
} sweep_t;

/* Hessian of lam' (x_next (-) node) at knot n. */
EXPORT void stage_knot_second(const void *sweep, long n, const double *lam, double *xx, double *ux, double *uu)
{
    const sweep_t *k = sweep;
    const stages_t *s = k->stages;
    const stages_t here = {s->ti, s->td, s->substeps, s->t + n, s->dt + n, s->p + n * NP, s->theta + n * NT, s->pg + n * NPG};
    const point_t at = {k->at->xs + n * NX, k->at->us + n * NU, k->at->nodes + n * NX};
    const second_t out = {0.0, lam, NULL, NULL, xx, ux, uu};
    stage_second(&here, &at, 0, 1, &out, k->room);
}
#endif
#endif

#if defined FIRST && !defined ABREAST
static void load_end(const end_t *s, const double *x, knot_t *restrict k)
{
    LOAD(x, 0, NX, 1, k->x)
    LOAD(s->theta, 0, NTT, 1, k->theta)
    LOAD(s->pg, 0, NPGT, 1, k->pg)
    LOAD(s->t, 0, 1, 1, &k->t)
}

/* Costs and constraints of `count` states with stride `stride`. */
EXPORT void end_values(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    load_end(s, xs, k);
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < NX; i++) LANE(k->x[i], l) = xs[(l < own ? n + l : n) * stride + i];
        terminal_value(k->x, &k->t, k->theta, &k->l, w);
        put_rows(&k->l, 1, own, n, cost);
        if (!g) continue;
        final_value(k->x, &k->t, k->pg, k->g, w);
        put_rows(k->g, NGT, own, n, g);
    }
}

EXPORT void end_first(const end_t *s, const double *x, const end_first_t *out, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1);
    load_end(s, x, k);
    terminal_expand(k->x, &k->t, k->theta, &k->l, k->lx, k->lxx, w);
    STORE(&k->l, 1, 1, 0, out->cost)
    STORE(k->lx, ND, 1, 0, out->lx)
    STORE(k->lxx, ND * ND, 1, 0, out->Q)
    final_first(k->x, &k->t, k->pg, k->g, k->gx, w);
    STORE(k->g, NGT, 1, 0, out->g)
    STORE(k->gx, NGT * ND, 1, 0, out->gx)
}

#ifdef SECOND
/* Hessian of sigma l + y' g; y: NULL for none. */
EXPORT void end_second(const end_t *s, const double *x, double sigma, const double *y, double *xx, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1), *H = k->block;
    load_end(s, x, k);
    terminal_expand(k->x, &k->t, k->theta, &k->l, k->lx, k->lxx, w);
    for (int i = 0; i < ND * ND; i++) H[i] = sigma * k->lxx[i];
    if (y) {
        LOAD(y, 0, NGT, 1, k->g)
        final_second(k->x, &k->t, k->pg, k->g, k->lxx, w);
        add_scaled(splat(1.0), k->lxx, H, ND * ND);
    }
    STORE(H, ND * ND, 1, 0, xx)
}
#endif
#endif
