/* The knots of a sparse nonlinear program: values, first derivatives, and the Hessian of sigma l + lam' x_next + y'g.
   The twin of trajopt/stage/knots.py on vector spaces.

   Before this text stand curvature.h with what it asks for; NT, NTT (weights and parameters of running and terminal terms), NG, NGT
   (constraints at running knots and at the final one), NPG, NPGT (their parameters), TERMS_ROOM; and the functions

       running_value, running_expand, terminal_value, terminal_expand                          (term_source.py)
       path_value, path_first, path_second, final_value, final_first, final_second             (constraint_source.py)

   First derivatives leave the substeps behind, `kept`: the Hessian at the same point costs one sweep back through them. */

#define MOST(a, b) ((a) > (b) ? (a) : (b))

typedef struct {
    curvature_t step;
    V theta[MOST(NT, NTT) + 1], pg[MOST(NPG, NPGT) + 1], y[MOST(NG, NGT) + 1], l, lx[ND], lu[NU + 1], lxx[ND * ND], lux[NU * ND + 1],
        luu[NU * NU + 1], g[MOST(NG, NGT) + 1], gx[MOST(NG, NGT) * ND + 1], gu[NG * NU + 1], block[MOST(ND, NU) * MOST(ND, NU)];
} knot_t;

EXPORT long knots_room(const int *head)
{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb; (void)nv; (void)nq;
    return sizeof(knot_t) / sizeof(V) + DYNAMICS_ROOM + TERMS_ROOM;
}

/* Vectors that a block of knots keeps of a substep. */
EXPORT long knots_kept(void) { return sizeof(substep_t) / sizeof(V); }

/* The inputs of the knots of a block. */
#define LOAD                                                                                                   \
    const int count = last - n < LANES ? last - n : LANES;                                                     \
    pack(xs + n * NX, NX, count, a->x);                                                                        \
    pack(us + n * NU, NU, count, a->u);                                                                        \
    pack(theta + n * NT, NT, count, k->theta);                                                                 \
    pack(pg + n * NPG, NPG, count, k->pg);                                                                     \
    const V time = lanes_of(t + n, count), length = lanes_of(dt + n, count);

EXPORT void knots_values(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double *x_next, double *cost, double *g, V *room)
{
    knot_t *k = (knot_t *)room;
    curvature_t *a = &k->step;
    V *w = (V *)(k + 1);
    ctx_t c = {ti, td, w};
    for (long n = first; n < last; n += LANES) {
        LOAD
        step(c, substeps, a->x, a->u, time, length, a->p, a->next);
        unpack(a->next, NX, count, x_next + n * NX);
        running_value(a->x, a->u, &time, &length, k->theta, &k->l, w);
        unpack(&k->l, 1, count, cost + n);
        path_value(a->x, a->u, &time, k->pg, k->g, w);
        unpack(k->g, NG, count, g + n * NG);
    }
}

/* A block of rows of G (ND x NW), `width` columns from `first` on */
static void unpack_columns(const V *G, int first, int width, int count, V *block, double *out)
{
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < width; j++) block[i * width + j] = G[i * NW + first + j];
    unpack(block, ND * width, count, out);
}

EXPORT void knots_first(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double *x_next, double *cost, double *g, double *A, double *B,
    double *lx, double *lu, double *gx, double *gu, substep_t *kept, V *room)
{
    knot_t *k = (knot_t *)room;
    curvature_t *a = &k->step;
    V *w = (V *)(k + 1);
    ctx_t c = {ti, td, w};
    for (long n = first; n < last; n += LANES) {
        LOAD
        running_expand(a->x, a->u, &time, &length, k->theta, &k->l, k->lx, k->lu, k->lxx, k->lux, k->luu, w);
        unpack(&k->l, 1, count, cost + n);
        unpack(k->lx, ND, count, lx + n * ND);
        unpack(k->lu, NU, count, lu + n * NU);
        path_first(a->x, a->u, &time, k->pg, k->g, k->gx, k->gu, w);
        unpack(k->g, NG, count, g + n * NG);
        unpack(k->gx, NG * ND, count, gx + n * NG * ND);
        unpack(k->gu, NG * NU, count, gu + n * NG * NU);
        forward(c, substeps, time, length / (double)substeps, kept + n / LANES * substeps, a, NULL);
        unpack(a->x, NX, count, x_next + n * NX);
        unpack_columns(a->G, 0, ND, count, k->block, A + n * ND * ND);
        unpack_columns(a->G, ND, NU, count, k->block, B + n * ND * NU);
    }
}

/* The upper triangle of H += factor times that of (lxx, lux, luu) */
static void add_expansion(const knot_t *k, double factor, V *restrict H)
{
    for (int i = 0; i < ND; i++)
        for (int j = i; j < ND; j++) H[i * NW + j] += factor * k->lxx[i * ND + j];
    for (int i = 0; i < NU; i++) {
        for (int j = 0; j < ND; j++) H[j * NW + ND + i] += factor * k->lux[i * ND + j];
        for (int j = i; j < NU; j++) H[(ND + i) * NW + ND + j] += factor * k->luu[i * NU + j];
    }
}

/* `kept` is that of knots_first at the same xs, us. */
EXPORT void knots_second(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double sigma, const double *lam, const double *y, const substep_t *kept,
    double *xx, double *ux, double *uu, V *room)
{
    knot_t *k = (knot_t *)room;
    curvature_t *a = &k->step;
    V *w = (V *)(k + 1), *H = a->H, *block = k->block;
    ctx_t c = {ti, td, w};
    for (long n = first; n < last; n += LANES) {
        LOAD
        pack(lam + n * ND, ND, count, a->lam);
        pack(y + n * NG, NG, count, k->y);
        memset(H, 0, sizeof a->H);
        running_expand(a->x, a->u, &time, &length, k->theta, &k->l, k->lx, k->lu, k->lxx, k->lux, k->luu, w);
        add_expansion(k, sigma, H);
        path_second(a->x, a->u, &time, k->pg, k->y, k->lxx, k->lux, k->luu, w);
        add_expansion(k, 1.0, H);
        backward(c, substeps, time, length / (double)substeps, kept + n / LANES * substeps, a, 0);
        for (int i = 0; i < ND; i++)
            for (int j = i; j < ND; j++) block[i * ND + j] = block[j * ND + i] = H[i * NW + j];
        unpack(block, ND * ND, count, xx + n * ND * ND);
        for (int i = 0; i < NU; i++)
            for (int j = 0; j < ND; j++) block[i * ND + j] = H[j * NW + ND + i];
        unpack(block, NU * ND, count, ux + n * NU * ND);
        for (int i = 0; i < NU; i++)
            for (int j = i; j < NU; j++) block[i * NU + j] = block[j * NU + i] = H[(ND + i) * NW + ND + j];
        unpack(block, NU * NU, count, uu + n * NU * NU);
    }
}

#define LOAD_FINAL                                                                                             \
    knot_t *k = (knot_t *)room;                                                                                \
    V *w = (V *)(k + 1), *x = k->step.x;                                                                       \
    const V time = splat(t[0]);                                                                                \
    pack(xN, NX, 1, x);                                                                                        \
    pack(theta, NTT, 1, k->theta);                                                                             \
    pack(pg, NPGT, 1, k->pg);                                                                                  \
    terminal_expand(x, &time, k->theta, &k->l, k->lx, k->lxx, w);

/* Values and first derivatives at the final knot. */
EXPORT void final_knot_first(
    const double *xN, const double *t, const double *theta, const double *pg, double *cost, double *g, double *lx, double *gx, V *room)
{
    LOAD_FINAL
    unpack(&k->l, 1, 1, cost);
    unpack(k->lx, ND, 1, lx);
    final_first(x, &time, k->pg, k->g, k->gx, w);
    unpack(k->g, NGT, 1, g);
    unpack(k->gx, NGT * ND, 1, gx);
}

EXPORT void final_knot_second(
    const double *xN, const double *t, const double *theta, const double *pg, double sigma, const double *y, double *xx, V *room)
{
    LOAD_FINAL
    V *H = k->step.H;
    pack(y, NGT, 1, k->y);
    final_second(x, &time, k->pg, k->y, H, w);
    for (int i = 0; i < ND * ND; i++) H[i] += sigma * k->lxx[i];
    unpack(H, ND * ND, 1, xx);
}
