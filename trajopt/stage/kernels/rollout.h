/* Closed-loop roll-outs of a phase for several step lengths: u = us + alpha du + K (x (-) (xs (+) alpha dx)), within bounds.
   The twin of the roll-out of trajopt/stage/numpy_stages.py.  Before this text stands stage.h.

   The horizon is rolled out in parts, one in each lane: a part begins at xs (+) alpha dx at knot 0 and at nodes with linear gaps,
   elsewhere at the state found in X, and ends at the first such node or at the end of the phase. */

/* Where the lanes are: knots n, all the same or not, counted from the first of the horizon. */
typedef struct {
    long n[LANES];
    int count, same;
} lanes_t;

static void settle(lanes_t *at)
{
    at->same = 1;
    for (int l = 1; l < LANES; l++)
        if (at->n[l] != at->n[0]) at->same = 0;
}

/* Entry i of the rows of `values` at the knots of the lanes, the first row being that of the knot `origin`. */
ALWAYS_INLINE V of_lanes(const double *values, const lanes_t *at, long origin, long width, long i)
{
    V r = ZERO;
    if (at->same) return splat(values[(at->n[0] - origin) * width + i]);
    for (int l = 0; l < LANES; l++) LANE(r, l) = values[(at->n[l] - origin) * width + i];
    return r;
}

/* xs (+) alpha dx at the knots of the lanes */
static void along(const trials_t *r, V alpha, const lanes_t *at, V *restrict y)
{
    V from[NX], move[ND];
    for (int i = 0; i < NX; i++) from[i] = of_lanes(r->xs, at, 0, NX, i);
    for (int i = 0; i < ND; i++) move[i] = alpha * of_lanes(r->dx, at, 0, ND, i);
    manifold_integrate(from, move, y);
}

/* The lanes at the starts of the parts from `part` on; steps: the longest way ahead. */
static lanes_t begin(const trials_t *r, const parts_t *p, long part, long last, V *restrict alpha, long *steps)
{
    lanes_t at;
    at.count = last - part < LANES ? last - part : LANES;
    *steps = 0;
    for (int l = 0; l < LANES; l++) {
        const long k = part + (l < at.count ? l : at.count - 1);
        at.n[l] = p->start[k];
        LANE(*alpha, l) = r->alphas[p->trial[k]];
        if (p->stop[k] - p->start[k] > *steps) *steps = p->stop[k] - p->start[k];
    }
    settle(&at);
    return at;
}

/* The states x at the starts: those `ahead`, kept in X, or those found in X. */
static void enter(const trials_t *r, const parts_t *p, long part, const lanes_t *at, const V *ahead, V *restrict x)
{
    memcpy(x, ahead, sizeof(V) * NX);
    for (int l = 0; l < at->count; l++) {
        const long n = at->n[l];
        double *kept = r->X + (p->trial[part + l] * (r->N + 1) + n) * NX;
        const int fresh = n == 0 || (r->node[n] && !r->nonlinear);
        for (int i = 0; i < NX; i++)
            if (fresh) kept[i] = LANE(x[i], l);
            else LANE(x[i], l) = kept[i];
    }
}

/* u from the deviation e of x */
static void controls(const trials_t *r, V alpha, const lanes_t *at, const V *e, V *restrict u)
{
    for (int i = 0; i < NU; i++) {
        V s = of_lanes(r->us, at, 0, NU, i) + alpha * of_lanes(r->du, at, 0, NU, i);
        for (int k = 0; k < ND; k++) s += of_lanes(r->K, at, 0, NU * ND, i * ND + k) * e[k];
        if (r->lower) s = v_fmax(v_fmin(s, of_lanes(r->upper, at, 0, NU, i)), of_lanes(r->lower, at, 0, NU, i));
        u[i] = s;
    }
}

/* From x_next to the state x at the knots `next`, and the gap e that is left there. */
static void close_gaps(const trials_t *r, V alpha, const lanes_t *at, const lanes_t *next, const V *ahead, const V *x_next, V *restrict x,
                       V *restrict e)
{
    memcpy(x, x_next, sizeof(V) * NX);
    for (int i = 0; i < ND; i++) e[i] = ZERO;
    if (r->nonlinear) { /* the parts of all lanes are then the same */
        V back[ND];
        if (!r->node[next->n[0]]) return;
        for (int i = 0; i < ND; i++) back[i] = -(e[i] = (1.0 - alpha) * r->gaps[at->n[0] * ND + i]);
        manifold_integrate(x_next, back, x);
        return;
    }
    V gap[ND];
    manifold_difference(ahead, x_next, gap);
    for (int l = 0; l < LANES; l++) {
        if (!r->node[next->n[l]]) continue;
        for (int i = 0; i < ND; i++) LANE(e[i], l) = LANE(gap[i], l);
        for (int i = 0; i < NX; i++) LANE(x[i], l) = LANE(ahead[i], l);
    }
}

/* Keep u, the gap e and the state x after the j-th step of the parts that are not yet at their end. */
static void keep_step(const trials_t *r, const parts_t *p, long part, long j, const lanes_t *at, const V *u, const V *e, const V *x)
{
    for (int l = 0; l < at->count; l++) {
        const long trial = p->trial[part + l], n = at->n[l], N = r->N;
        if (j >= p->stop[part + l] - p->start[part + l]) continue;
        for (int i = 0; i < NU; i++) r->U[(trial * N + n) * NU + i] = LANE(u[i], l);
        for (int i = 0; i < ND; i++) r->D[(trial * N + n) * ND + i] = LANE(e[i], l);
        if (n + 1 < N && r->node[n + 1] && !r->nonlinear) continue; /* kept by the part that begins there */
        for (int i = 0; i < NX; i++) r->X[(trial * (N + 1) + n + 1) * NX + i] = LANE(x[i], l);
    }
}

EXPORT void stage_rollout(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, V *room)
{
    knot_t *k = (knot_t *)room;
    V *w = (V *)(k + 1), *x = k->x, *u = k->u, *ahead = k->node, *e = k->d;
    const ctx_t c = {s->ti, s->td, w};
    for (long part = first; part < last; part += LANES) {
        V alpha = ZERO, total = ZERO;
        long steps;
        lanes_t at = begin(r, p, part, last, &alpha, &steps), next = at;
        along(r, alpha, &at, ahead);
        enter(r, p, part, &at, ahead, x);
        for (long j = 0; j < steps; j++) {
            manifold_difference(ahead, x, e);
            controls(r, alpha, &at, e, u);
            for (int i = 0; i < NP; i++) k->p[i] = of_lanes(s->p, &at, p->origin, NP, i);
            for (int i = 0; i < NT; i++) k->theta[i] = of_lanes(s->theta, &at, p->origin, NT, i);
            k->t = of_lanes(s->t, &at, p->origin, 1, 0);
            k->dt = of_lanes(s->dt, &at, p->origin, 1, 0);
            running_value(x, u, &k->t, &k->dt, k->theta, &k->l, w);
            step(c, s->substeps, x, u, k->t, k->dt, k->p, k->next);
            for (int l = 0; l < LANES; l++) next.n[l] = at.n[l] + 1;
            next.same = at.same;
            along(r, alpha, &next, ahead);
            close_gaps(r, alpha, &at, &next, ahead, k->next, x, e);
            keep_step(r, p, part, j, &at, u, e, x);
            for (int l = 0; l < at.count; l++)
                if (j < p->stop[part + l] - p->start[part + l]) LANE(total, l) += LANE(k->l, l);
            for (int l = 0; l < LANES; l++) /* a part that has ended goes on at its last knot, unseen */
                if (next.n[l] < p->stop[part + (l < at.count ? l : at.count - 1)]) at.n[l] = next.n[l];
            settle(&at);
        }
        for (int l = 0; l < at.count; l++) p->cost[part + l] = LANE(total, l);
    }
}
